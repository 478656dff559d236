"""Held reservations: an open quarantine row of the order group names them, the inbox does not.

They are rejected by their ticket (COMPENSATE), by a rebuild that can honour them no more, or a day
after the sale's end; all three go through `reject_held`. Source: docs/protocol.md.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from messaging import inbox, outbox, quarantine
from messaging.envelope import PRODUCER, SCHEMA_VERSION, format_instant, to_epoch_ms, trace_of
from messaging.quarantine import HeldReservation
from messaging.topology import CG_ORDER_CREATE
from orders.contracts import CREATE_EVENT_TYPE, CreateOrder
from orders.database import fetch
from orders.events import NO_TRACE
from orders.reject_order import inbox_entry, write_rejects
from orders.states import RejectReason

_WITH_OUTCOME: Final = """
SELECT reservation_id FROM orders_reservation WHERE reservation_id = ANY(%b::text[])
"""
_OPEN_ROW: Final = """
SELECT message_id, reservation_id, activity_id, sku_id, user_id, quantity, valid_until
  FROM messaging_quarantine
 WHERE consumer_group = %s AND status = 'OPEN' AND reservation_id = %s
 ORDER BY first_at LIMIT 1
   FOR SHARE
"""


def held_reservations(activity_id: int) -> list[HeldReservation]:
    """Return the held reservations of a sale, oldest first (their ids are in order of time).

    Cost: two statements.
    """
    rows = quarantine.held_reservations(group=CG_ORDER_CREATE, activity_id=activity_id)
    ended = (
        {row[0] for row in fetch(_WITH_OUTCOME, ([r.reservation_id for r in rows],))}
        if rows
        else set()
    )
    return [row for row in rows if row.reservation_id not in ended]


def lock_held(reservation_id: str) -> HeldReservation | None:
    """Return one held reservation, its row locked until the transaction ends; None if not held."""
    rows = fetch(_OPEN_ROW, (CG_ORDER_CREATE, reservation_id))
    if not rows or fetch(_WITH_OUTCOME, ([reservation_id],)):
        return None
    row = rows[0]
    return HeldReservation(
        message_id=row[0],
        reservation_id=row[1],
        activity_id=row[2],
        sku_id=row[3],
        user_id=row[4],
        quantity=row[5],
        valid_until=row[6],
    )


def is_complete(held: HeldReservation) -> bool:
    """Tell whether the row knows enough to write an outcome for it."""
    return bool(held.activity_id and held.sku_id and held.user_id and held.quantity)


def reject_held(
    rejects: Iterable[tuple[HeldReservation, RejectReason]], *, now: datetime, resolution: str
) -> list[str]:
    """Reject held reservations inside the caller's transaction: inbox, row, release DUE, outbox.

    Args:
        rejects: complete rows and their reasons.
        now: the database's clock from `begin`.
        resolution: stable code that their quarantine rows are closed with.

    Returns:
        The reservations that were rejected; one whose inbox row exists has its outcome already.

    Raises:
        ReservationConflict: an outcome exists under another message id.

    Cost: four statements for any number.
    """
    messages = {message.message_id: (message, why) for message, why in _messages(rejects, now)}
    if not messages:
        return []
    new = inbox.claim(
        group=CG_ORDER_CREATE,
        entries=[inbox_entry(message, reason=why) for message, why in messages.values()],
    )
    written = [messages[message_id] for message_id in sorted(new)]
    if written:
        outbox.add(write_rejects(written, now=now))
    quarantine.resolve(group=CG_ORDER_CREATE, message_ids=sorted(messages), resolution=resolution)
    return [message.reservation_id for message, _ in written]


def _messages(
    rejects: Iterable[tuple[HeldReservation, RejectReason]], now: datetime
) -> Sequence[tuple[CreateOrder, RejectReason]]:
    """Build the messages again: all ids of a purchase share one ULID, whatever the body tells."""
    made = []
    for held, reason in rejects:
        suffix = held.reservation_id.removeprefix("rsv_")
        valid_until = format_instant(to_epoch_ms(held.valid_until or now))
        made.append(
            (
                CreateOrder(
                    schema_version=SCHEMA_VERSION,
                    event_type=CREATE_EVENT_TYPE,
                    message_id=held.message_id,
                    message_key=held.reservation_id,
                    request_id=f"req_{suffix}",
                    reservation_id=held.reservation_id,
                    order_id=f"ord_{suffix}",
                    activity_id=held.activity_id or 0,
                    sku_id=held.sku_id or 0,
                    user_id=held.user_id or "",
                    quantity=held.quantity or 0,
                    reservation_created_at=valid_until,
                    reservation_valid_until=valid_until,
                    created_at=valid_until,
                    retry_count=0,
                    replay_count=0,
                    producer=PRODUCER,
                    trace=trace_of(NO_TRACE),
                ),
                reason,
            )
        )
    return made

"""The reject transaction: a terminal row, its release due, its messages; and what is known already.

The order consumer, the sweep and the tickets all reject through `write_rejects`, under an inbox row
that they claimed in the same transaction: two of them cannot reach different results.
Rules: `sweep-confirm` and `held-consumer` of docs/protocol.md.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.db import transaction

from messaging import inbox, outbox, quarantine
from messaging.envelope import parse_instant
from messaging.inbox import InboxEntry
from messaging.outbox import OutboxMessage
from messaging.topology import CG_ORDER_CREATE
from orders.contracts import ORDER_REJECTED, CreateOrder
from orders.database import begin, fetch
from orders.events import NO_TRACE, OrderRecord, order_event, release_command
from orders.states import RejectReason, ReleaseState, ReservationOutcome

# Inbox outcomes of this group (the inbox stores text; its own list is messaging's).
CREATED: Final = "CREATED"
REJECTED: Final = "REJECTED"
STALE_NOOP: Final = "STALE_NOOP"

_INSERT_REJECTS: Final = """
INSERT INTO orders_reservation
  (reservation_id, message_id, request_id, order_id, activity_id, sku_id, user_id, quantity,
   outcome, reject_reason, release_state, restock, release_due_at, valid_until, created_at)
SELECT t.reservation_id, t.message_id, t.request_id, t.order_id, t.activity_id, t.sku_id,
       t.user_id, t.quantity, 'REJECTED', t.reason, 'DUE', true, %s::timestamptz,
       t.valid_until::timestamptz, %s::timestamptz
  FROM unnest(%b::text[], %b::text[], %b::text[], %b::text[], %b::bigint[], %b::bigint[],
              %b::text[], %b::int[], %b::text[], %b::text[])
       AS t(reservation_id, message_id, request_id, order_id, activity_id, sku_id, user_id,
            quantity, reason, valid_until)
ON CONFLICT (reservation_id) DO NOTHING
RETURNING reservation_id
"""

_KNOWN: Final = """
SELECT r.reservation_id, r.order_id, r.request_id, r.activity_id, r.sku_id, r.user_id, r.quantity,
       r.outcome, coalesce(nullif(r.reject_reason, ''), o.cancel_reason, ''), r.release_state,
       r.restock, r.message_id
  FROM orders_reservation r
  LEFT JOIN orders_order o ON o.order_id = r.order_id AND r.outcome = 'ORDERED'
 WHERE r.reservation_id = ANY(%b::text[])
 ORDER BY r.reservation_id
"""


class ReservationConflict(Exception):
    """A reservation of the batch has an outcome under another message id: run one by one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownReservation:
    """A reservation's outcome in PostgreSQL."""

    reservation_id: str
    order_id: str
    request_id: str
    activity_id: int
    sku_id: int
    user_id: str
    quantity: int
    outcome: ReservationOutcome
    reason: str
    release_state: ReleaseState
    restock: bool
    message_id: str

    @property
    def wants_confirm(self) -> bool:
        """Whether the gate should hold it as CONFIRMED: ordered, and nothing given back."""
        return (
            self.outcome is ReservationOutcome.ORDERED and self.release_state is ReleaseState.NONE
        )


def known_reservations(reservation_ids: Iterable[str]) -> list[KnownReservation]:
    """Read the outcomes that PostgreSQL has, in the order of their ids. One statement."""
    rows = fetch(_KNOWN, (sorted(set(reservation_ids)),))
    return [
        KnownReservation(
            reservation_id=row[0],
            order_id=row[1],
            request_id=row[2],
            activity_id=row[3],
            sku_id=row[4],
            user_id=row[5],
            quantity=row[6],
            outcome=ReservationOutcome(row[7]),
            reason=row[8],
            release_state=ReleaseState(row[9]),
            restock=row[10],
            message_id=row[11],
        )
        for row in rows
    ]


def write_rejects(
    rejects: Sequence[tuple[CreateOrder, RejectReason]], *, now: datetime
) -> list[OutboxMessage]:
    """Write the terminal rows of rejects; inside the caller's transaction.

    Args:
        rejects: message and reason; the caller claimed their inbox rows.
        now: the database's clock from `begin`.

    Returns:
        RELEASE_RESERVATION and ORDER_REJECTED of each, for the outbox.

    Raises:
        ReservationConflict: one of them has an outcome already; nothing may be released for it.

    Cost: one statement.
    """
    rejects = sorted(rejects, key=lambda pair: pair[0].reservation_id)
    messages = [message for message, _ in rejects]
    written = fetch(
        _INSERT_REJECTS,
        (
            now,
            now,
            [m.reservation_id for m in messages],
            [m.message_id for m in messages],
            [m.request_id for m in messages],
            [m.order_id for m in messages],
            [m.activity_id for m in messages],
            [m.sku_id for m in messages],
            [m.user_id for m in messages],
            [m.quantity for m in messages],
            [reason.value for _, reason in rejects],
            [m.reservation_valid_until for m in messages],
        ),
    )
    if len(written) != len(rejects):
        raise ReservationConflict
    out: list[OutboxMessage] = []
    for message, reason in rejects:
        record = _without_order(
            message,
            status=REJECTED,
            reason=reason.value,
            traceparent=message.trace.traceparent,
            now=now,
        )
        out.append(release_command(record, restock=True, now=now))
        out.append(order_event(ORDER_REJECTED, record, now=now))
    return out


def rearm(known: Sequence[KnownReservation], *, now: datetime) -> list[OutboxMessage]:
    """Build the release of what is known and still DUE once more: its first message may be lost."""
    return [
        release_command(
            _without_order(
                one, status=one.outcome.value, reason=one.reason, traceparent=NO_TRACE, now=now
            ),
            restock=one.restock,
            now=now,
        )
        for one in known
        if one.release_state is ReleaseState.DUE
    ]


def valid_extensions(reservation_ids: Sequence[str], *, now: datetime) -> set[str]:
    """Return which reservations have an audited extension row that has not passed itself."""
    return {
        row[0]
        for row in fetch(
            "SELECT reservation_id FROM orders_extension"
            " WHERE reservation_id = ANY(%b::text[]) AND valid_until > %s",
            (sorted(reservation_ids), now),
        )
    }


def is_expired(message: CreateOrder, *, now: datetime) -> bool:
    """Tell whether the message's own deadline has passed on the database's clock."""
    return parse_instant(message.reservation_valid_until) <= now


def reject_expired(messages: Sequence[CreateOrder]) -> None:
    """Reject what expired and has no inbox row: the consumer's reject transaction, for the sweep.

    Left alone: what is not past its deadline on the database's clock, what has a valid extension
    row, what an open quarantine row holds, and what the inbox knows. The caller reads afterwards
    what became of each (`known_reservations`); it never decides by itself.

    Raises:
        ReservationConflict: an outcome exists under another message id; try one by one.

    Cost: six statements, no hot row.
    """
    with transaction.atomic(durable=True):
        now = begin()
        expired = {m.message_id: m for m in messages if is_expired(m, now=now)}
        if not expired:
            return
        extended = valid_extensions([m.reservation_id for m in expired.values()], now=now)
        held = quarantine.held(group=CG_ORDER_CREATE, message_ids=list(expired), lock=True)
        rejectable = {
            message_id: message
            for message_id, message in expired.items()
            if message_id not in held and message.reservation_id not in extended
        }
        if not rejectable:
            return
        new = inbox.claim(
            group=CG_ORDER_CREATE,
            entries=[
                inbox_entry(message, reason=RejectReason.RESERVATION_EXPIRED)
                for message in rejectable.values()
            ],
        )
        rejects = [(rejectable[i], RejectReason.RESERVATION_EXPIRED) for i in sorted(new)]
        if rejects:
            outbox.add(write_rejects(rejects, now=now))


def inbox_entry(
    message: CreateOrder, *, reason: RejectReason | None, delivery_attempt: int = 1
) -> InboxEntry:
    """Build the inbox row of a message: CREATED without a reason, REJECTED with one."""
    return InboxEntry(
        message_id=message.message_id,
        outcome=REJECTED if reason else CREATED,
        reason=reason.value if reason else "",
        reservation_id=message.reservation_id,
        order_id=message.order_id,
        delivery_attempt=delivery_attempt,
    )


def by_id(known: Iterable[KnownReservation]) -> Mapping[str, KnownReservation]:
    """Index outcomes by reservation."""
    return {one.reservation_id: one for one in known}


def _without_order(
    one: CreateOrder | KnownReservation,
    *,
    status: str,
    reason: str,
    traceparent: str,
    now: datetime,
) -> OrderRecord:
    """Tell of a reservation that became no order as its events tell of one."""
    return OrderRecord(
        order_id=one.order_id,
        reservation_id=one.reservation_id,
        request_id=one.request_id,
        activity_id=one.activity_id,
        sku_id=one.sku_id,
        user_id=one.user_id,
        quantity=one.quantity,
        amount_cents=0,
        currency="",
        status=status,
        version=1,
        reason=reason,
        created_at=now,
        expires_at=None,
        paid_at=None,
        canceled_at=None,
        payment_id="",
        traceparent=traceparent,
    )

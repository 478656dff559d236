"""What the desk for dead messages may ask orders: is a body right, what do the rows say of it.

Everything runs inside the caller's transaction, so that a dry run is one snapshot and the look
right before a send is under lock.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from inventory import verbs
from inventory.errors import GateUnavailable
from inventory.gate import gate
from inventory.gate_status import is_lost
from inventory.selectors import activity_record
from inventory.states import GateStatus
from messaging import inbox, quarantine
from messaging.envelope import StrictDecoder
from messaging.errors import PermanentError
from messaging.inbox import InboxOutcomeRecord
from messaging.topology import (
    CG_AUDIT,
    CG_INVENTORY_COMPENSATE,
    CG_ORDER_CREATE,
    CG_ORDER_TIMEOUT,
    GROUPS,
    ORDER_EVENT,
    group_spec,
)
from orders.contracts import (
    cancel_decoder,
    create_order_decoder,
    order_event_decoder,
    release_decoder,
)
from orders.database import fetch
from orders.held import is_complete, lock_held

_DECODERS: Final[Mapping[str, StrictDecoder[Any]]] = {
    CG_ORDER_CREATE: create_order_decoder,
    CG_ORDER_TIMEOUT: cancel_decoder,
    CG_INVENTORY_COMPENSATE: release_decoder,
    **{group.name: order_event_decoder for group in GROUPS if group.topic == ORDER_EVENT},
}

# One purchase, by key, in one row; what is not there is null.
_ROWS: Final = """
SELECT clock_timestamp(), o.order_id, o.status, o.aggregate_version, r.outcome, r.reject_reason,
       r.release_state, coalesce(r.valid_until, %s::timestamptz), e.valid_until,
       (SELECT x.order_id FROM orders_order x
         WHERE x.activity_id = %s AND x.sku_id = %s AND x.user_id = %s
           AND x.reservation_id <> %s AND x.status NOT IN ('CANCELED', 'REFUNDED') LIMIT 1),
       (SELECT s.available FROM inventory_stock s WHERE s.sku_id = %s),
       (SELECT a.voided_at IS NOT NULL FROM inventory_activity a WHERE a.id = %s)
  FROM (VALUES (1)) AS one
  LEFT JOIN orders_order o ON o.reservation_id = %s
  LEFT JOIN orders_reservation r ON r.reservation_id = %s
  LEFT JOIN orders_extension e ON e.reservation_id = %s
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class PurchaseRows:
    """What PostgreSQL knows of the purchase that a message speaks of. Empty text: no such row."""

    now: datetime
    order_id: str
    order_status: str
    order_version: int
    outcome: str
    reject_reason: str
    release_state: str
    valid_until: datetime | None
    extended_until: datetime | None
    other_live_order: str
    available: int | None
    voided: bool
    held: bool
    complete: bool


def body_error(*, group: str, body: bytes) -> str:
    """Return why a group could not read a body, as its stable code; empty when it can."""
    decoder = _DECODERS.get(group)
    if decoder is None:
        return ""
    try:
        decoder.decode(body)
    except PermanentError as error:
        return error.reason
    return ""


def purchase_rows(
    *,
    reservation_id: str,
    activity_id: int | None,
    sku_id: int | None,
    user_id: str | None,
    valid_until: datetime | None,
    message_id: str,
    lock: bool,
) -> PurchaseRows:
    """Read the rows of a purchase.

    Args:
        reservation_id: of the message.
        activity_id: as far as the message tells, as the next three.
        sku_id: None when unknown.
        user_id: None when unknown.
        valid_until: the message's own deadline.
        message_id: of the dead message.
        lock: hold its open quarantine row, so that nobody ends it before the caller commits.

    Cost: two to four statements by key.
    """
    ((now, order_id, status, version, outcome, why, release, until, extended, other, stock, voided),
     ) = fetch(
        _ROWS,
        (
            valid_until, activity_id, sku_id, user_id, reservation_id, sku_id, activity_id,
            reservation_id, reservation_id, reservation_id,
        ),
    )  # fmt: skip
    if lock:
        quarantine.held(group=CG_ORDER_CREATE, message_ids=[message_id], lock=True)
    held = held_row(reservation_id, lock=lock)
    return PurchaseRows(
        now=now,
        order_id=order_id or "",
        order_status=status or "",
        order_version=version or 0,
        outcome=outcome or "",
        reject_reason=why or "",
        release_state=release or "",
        valid_until=until,
        extended_until=extended,
        other_live_order=other or "",
        available=stock,
        voided=bool(voided),
        held=held is not None,
        complete=bool(held),
    )


_HELD: Final = """
SELECT activity_id IS NOT NULL AND sku_id IS NOT NULL AND user_id IS NOT NULL
       AND quantity IS NOT NULL
  FROM messaging_quarantine q
 WHERE consumer_group = %s AND status = 'OPEN' AND reservation_id = %s
   AND NOT EXISTS (SELECT FROM orders_reservation r WHERE r.reservation_id = q.reservation_id)
 ORDER BY first_at LIMIT 1
"""


def held_row(reservation_id: str, *, lock: bool = False) -> bool | None:
    """Tell whether a reservation is held: None if not, else whether its row tells whose it is."""
    if lock:
        held = lock_held(reservation_id)
        return None if held is None else is_complete(held)
    rows = fetch(_HELD, (CG_ORDER_CREATE, reservation_id))
    return bool(rows[0][0]) if rows else None


def inbox_of(*, group: str, message_id: str) -> InboxOutcomeRecord | None:
    """Return what a group did with a message; None for nothing, and for groups without an inbox."""
    if group not in {spec.name for spec in GROUPS} or not group_spec(group).has_inbox:
        return None
    return inbox.outcomes(group=group, message_ids=[message_id]).get(message_id)


def gate_names(
    *, activity_id: int | None, sku_id: int | None, user_id: str | None, reservation_id: str
) -> bool:
    """Tell whether a gate that is neither lost nor rebuilding names the reservation as its buyer's.

    Rule `extension-held`. A gate that does not answer counts as no. Cost: two reads of Redis.
    """
    record = activity_record(activity_id or 0)
    if record is None or record.rebuild_unfinished or record.loss_noted_at:
        return False
    try:
        state = gate().run(verbs.gate_state(activity_id=record.activity_id, sku_id=sku_id or 0))
        if state is None or is_lost(record, state):
            return False
        if state.status == GateStatus.REBUILDING or state.rebuild_run:
            return False
        holders = gate().run(verbs.holders(activity_id=record.activity_id, sku_id=sku_id or 0))
    except GateUnavailable:
        return False
    return holders.get(user_id or "") == reservation_id


# Effects of groups without an inbox: the guarded row tells.
_RELEASED: Final = "SELECT release_state = 'DONE' FROM orders_reservation WHERE reservation_id = %s"
_NOT_OVERDUE: Final = """
SELECT status NOT IN ('CREATED', 'PAYING') OR expires_at > clock_timestamp()
  FROM orders_order WHERE order_id = %s
"""
_PROJECTED: Final = "SELECT aggregate_version >= %s FROM orders_query WHERE order_id = %s"
_ARCHIVED: Final = "SELECT true FROM messaging_event_archive WHERE event_id = %s"


def effect_is_there(*, group: str, body: bytes) -> bool:
    """Tell whether a message of a group without an inbox has had its effect. One statement."""
    try:
        message = _DECODERS[group].decode(body)
    except (KeyError, PermanentError):
        return False
    if group == CG_INVENTORY_COMPENSATE:
        rows = fetch(_RELEASED, (message.reservation_id,))
    elif group == CG_ORDER_TIMEOUT:
        rows = fetch(_NOT_OVERDUE, (message.order_id,))
    elif group_spec(group).has_inbox:
        return False
    elif group == CG_AUDIT:
        rows = fetch(_ARCHIVED, (message.event_id,))
    else:
        rows = fetch(_PROJECTED, (message.aggregate_version, message.order_id))
    return bool(rows and rows[0][0])

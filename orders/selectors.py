"""What buyers may read: their reservation's status and their orders. PostgreSQL first, then Redis.

Everything is asked for with the user's id: what is another's is None, as if it did not exist.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from inventory import keys, verbs
from inventory.call import Call
from inventory.contracts import PublicStatus, Reservation
from inventory.gate import gate
from inventory.states import GateReservationStatus, MqStatus
from messaging import quarantine
from messaging.topology import CG_ORDER_CREATE
from orders.database import fetch
from orders.events import ORDER_COLUMNS, OrderRecord, order_record
from orders.states import ReservationOutcome
from orders.status import of_order, of_reject

# A reservation that admission gave back because its message was refused for certain.
NOT_SENT: Final = "NOT_SENT"

_RESERVATION: Final = """
SELECT r.reservation_id, r.activity_id, r.sku_id, r.order_id, r.quantity, r.outcome,
       r.reject_reason, r.valid_until, o.status, o.aggregate_version, o.cancel_reason, o.expires_at
  FROM orders_reservation r
  LEFT JOIN orders_order o ON o.order_id = r.order_id AND r.outcome = 'ORDERED'
"""
_BY_ID: Final = (
    _RESERVATION + " WHERE r.reservation_id = %s AND r.activity_id = %s AND r.user_id = %s"
)
_NEWEST: Final = (
    _RESERVATION
    + " WHERE r.activity_id = %s AND r.user_id = %s AND r.sku_id = %s"
    + " ORDER BY r.reservation_id DESC LIMIT 1"
)
_ORDERS: Final = (
    f"SELECT {ORDER_COLUMNS} FROM orders_order o WHERE o.user_id = %s AND o.order_id < %s"  # noqa: S608
    " ORDER BY o.order_id DESC LIMIT %s"
)
_ORDER: Final = (
    f"SELECT {ORDER_COLUMNS} FROM orders_order o WHERE o.order_id = %s AND o.user_id = %s"  # noqa: S608
)
_ABOVE_ALL: Final = "ord_~"


@dataclass(frozen=True, kw_only=True, slots=True)
class ReservationView:
    """A reservation as its buyer sees it.

    `version` grows with each change, for readers of the event stream; `order_status` and
    `expires_at` are set once there is an order.
    """

    reservation_id: str
    activity_id: int
    sku_id: int
    order_id: str
    quantity: int
    status: PublicStatus
    reason: str
    valid_until: datetime | None
    version: int
    order_status: str
    expires_at: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class OrderPage:
    """A page of a buyer's orders, newest first. `next_cursor` is empty on the last page."""

    orders: Sequence[OrderRecord]
    next_cursor: str


def reservation_status(
    *, activity_id: int, reservation_id: str, user_id: str
) -> ReservationView | None:
    """Return the status of a buyer's reservation, None when there is none of his.

    Raises:
        GateUnavailable: PostgreSQL has no outcome and Redis does not answer.

    Cost: one statement; without an outcome one read of Redis and one more statement.
    """
    rows = fetch(_BY_ID, (reservation_id, activity_id, user_id))
    if rows:
        return _from_row(rows[0])
    (found,) = gate().run(
        verbs.reservations(activity_id=activity_id, reservation_ids=[reservation_id])
    )
    if found is not None:
        return _from_gate(found) if found.user_id == user_id else None
    return _from_quarantine(activity_id, reservation_id, user_id)


def my_reservation(*, activity_id: int, sku_id: int, user_id: str) -> ReservationView | None:
    """Return the reservation that a buyer holds for a SKU, else his newest outcome, else None.

    Raises:
        GateUnavailable: PostgreSQL has no live order of his and Redis does not answer.

    Cost: as `reservation_status`, and one more of each.
    """
    rows = fetch(_NEWEST, (activity_id, user_id, sku_id))
    newest = _from_row(rows[0]) if rows else None
    if newest is not None and newest.status is PublicStatus.ORDERED:
        return newest
    held = gate().run(_holder(activity_id, sku_id, user_id))
    if not held or (newest is not None and newest.reservation_id == held):
        return newest
    return reservation_status(activity_id=activity_id, reservation_id=held, user_id=user_id)


def my_orders(*, user_id: str, cursor: str = "", limit: int = 20) -> OrderPage:
    """Return a page of a buyer's orders, newest first.

    Args:
        user_id: the buyer.
        cursor: `next_cursor` of the page before (an order id); empty for the first.
        limit: 1 to 100.

    Cost: one statement on the index of users.
    """
    limit = min(max(limit, 1), 100)
    rows = fetch(_ORDERS, (user_id, cursor or _ABOVE_ALL, limit + 1))
    orders = [order_record(row) for row in rows[:limit]]
    return OrderPage(orders=orders, next_cursor=orders[-1].order_id if len(rows) > limit else "")


def order_detail(*, order_id: str, user_id: str) -> OrderRecord | None:
    """Return a buyer's order, None when it is not his. One statement."""
    rows = fetch(_ORDER, (order_id, user_id))
    return order_record(rows[0]) if rows else None


def _from_row(row: tuple[Any, ...]) -> ReservationView:
    ordered = row[5] == ReservationOutcome.ORDERED
    return ReservationView(
        reservation_id=row[0],
        activity_id=row[1],
        sku_id=row[2],
        order_id=row[3],
        quantity=row[4],
        status=of_order(row[8]) if ordered else of_reject(row[6]),
        reason=row[10] if ordered else row[6],
        valid_until=row[7],
        version=row[9] if ordered else 1,
        order_status=row[8] or "",
        expires_at=row[11],
    )


def _from_gate(found: Reservation) -> ReservationView:
    reason = ""
    if found.status == GateReservationStatus.RELEASED:
        reason = found.reject_reason or NOT_SENT
        status = of_reject(reason)
    elif found.status == GateReservationStatus.CONFIRMED:
        status = PublicStatus.ORDERED
    elif quarantine.held(group=CG_ORDER_CREATE, message_ids=[found.message_id]):
        status = PublicStatus.DELAYED
    elif found.mq_status == MqStatus.MQ_SENT:
        status = PublicStatus.QUEUED
    else:
        status = PublicStatus.PENDING
    return ReservationView(
        reservation_id=found.reservation_id,
        activity_id=found.activity_id,
        sku_id=found.sku_id,
        order_id=found.order_id,
        quantity=found.quantity,
        status=status,
        reason=reason,
        valid_until=datetime.fromtimestamp(found.valid_until_ms / 1000, tz=UTC),
        version=0,
        order_status="",
        expires_at=None,
    )


def _from_quarantine(activity_id: int, reservation_id: str, user_id: str) -> ReservationView | None:
    """Redis has lost it, but its message waits for a person: the buyer is not forgotten."""
    for row in quarantine.held_reservations(group=CG_ORDER_CREATE, activity_id=activity_id):
        if row.reservation_id == reservation_id and row.user_id == user_id:
            return ReservationView(
                reservation_id=reservation_id,
                activity_id=activity_id,
                sku_id=row.sku_id or 0,
                order_id="",
                quantity=row.quantity or 0,
                status=PublicStatus.DELAYED,
                reason="",
                valid_until=row.valid_until,
                version=0,
                order_status="",
                expires_at=None,
            )
    return None


def _holder(activity_id: int, sku_id: int, user_id: str) -> Call[str]:
    return Call(
        commands=(("HGET", keys.buyers(activity_id, sku_id), user_id),),
        parse=lambda raw: raw[0] or "",
    )

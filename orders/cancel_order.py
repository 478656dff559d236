"""Unpaid orders end: by time, by their buyer, by an operator. One guarded transition for all three.

Orders are locked by id, then stock by SKU (inside `stock.give_back`): the order of every other
transaction that needs both. Only a row that really changed gives units back, so a trigger may
come any number of times. Source: docs/states.md.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

import structlog
from django.core.exceptions import PermissionDenied
from django.db import transaction

import faultpoint
from orders import audit, metrics
from orders.contracts import ORDER_CANCELED
from orders.database import begin, fetch
from orders.end_order import end_orders
from orders.errors import OrderNotFound, OrderStateConflict
from orders.events import ORDER_COLUMNS, OrderRecord, order_record
from orders.models import Order
from orders.states import UNPAID, CancelReason, OrderStatus

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser, AnonymousUser

log = structlog.get_logger(__name__)

_LOCK: Final = """
SELECT order_id, status, expires_at <= clock_timestamp(), user_id
  FROM orders_order
 WHERE order_id = ANY(%b::text[])
 ORDER BY order_id
   FOR NO KEY UPDATE
"""

_CANCEL: Final = f"""
UPDATE orders_order o
   SET status = 'CANCELED', canceled_at = %s::timestamptz, cancel_reason = %s,
       aggregate_version = o.aggregate_version + 1
 WHERE o.order_id = ANY(%b::text[]) AND o.status IN ('CREATED', 'PAYING')
RETURNING {ORDER_COLUMNS}
"""  # noqa: S608 - constants

CANCEL_PERMISSION: Final = "orders.cancel_order"


@dataclass(frozen=True, kw_only=True, slots=True)
class CancelResult:
    """What a batch of triggers found."""

    canceled: tuple[str, ...]
    noop_paid: int
    noop_not_expired: int
    noop_canceled: int
    noop_missing: int


def cancel_unpaid(order_ids: Sequence[str]) -> CancelResult:
    """Cancel those orders that are unpaid past their expiry, on the database's clock.

    Args:
        order_ids: any number, doubles allowed.

    Returns:
        What was cancelled and why the rest was not; also counted in the metrics.

    Cost: one transaction, eight statements for a batch of any size; locks the stock rows last.
    """
    wanted = sorted(set(order_ids))
    with transaction.atomic(durable=True):
        now = begin()
        rows = fetch(_LOCK, (wanted,))
        due = [order_id for order_id, status, expired, _ in rows if status in UNPAID and expired]
        canceled = _cancel(due, reason=CancelReason.PAYMENT_TIMEOUT, restock=True, now=now)
        faultpoint.hit("cancel.before_commit")
    result = CancelResult(
        canceled=tuple(order.order_id for order in canceled),
        noop_paid=sum(s not in UNPAID and s != OrderStatus.CANCELED for _, s, _, _ in rows),
        noop_not_expired=sum(s in UNPAID and not expired for _, s, expired, _ in rows),
        noop_canceled=sum(s == OrderStatus.CANCELED for _, s, _, _ in rows),
        noop_missing=len(wanted) - len(rows),
    )
    metrics.CANCEL_MESSAGE.inc(len(order_ids))
    metrics.CANCEL_TRANSITION.inc(len(result.canceled))
    metrics.CANCEL_NOOP_PAID.inc(result.noop_paid)
    metrics.CANCEL_NOOP_NOT_EXPIRED.inc(result.noop_not_expired)
    metrics.CANCEL_NOOP_CANCELED.inc(result.noop_canceled)
    metrics.CANCEL_NOOP_MISSING.inc(result.noop_missing)
    return result


def cancel_by_user(*, order_id: str, user_id: str) -> OrderRecord:
    """Cancel a buyer's own unpaid order.

    Raises:
        OrderNotFound: no such order, or it is another's.
        OrderStateConflict: it is paid or ended already.
    """
    return _cancel_one(order_id, reason=CancelReason.USER, restock=True, owner=user_id)


def cancel_by_operator(
    *,
    order_id: str,
    user: "AbstractBaseUser | AnonymousUser",
    reason: str,
    restock: bool = True,
) -> OrderRecord:
    """Cancel an unpaid order for an operator.

    Args:
        order_id: the order.
        user: needs the permission `orders.cancel_order`.
        reason: why, kept in the admin's history of the order; never empty.
        restock: False withholds the units from the sale; the buyer is freed either way.

    Raises:
        PermissionDenied: the user may not cancel orders.
        ValueError: the reason is empty.
        OrderNotFound, OrderStateConflict: as `cancel_by_user`.
    """
    if not user.has_perm(CANCEL_PERMISSION):  # type: ignore[union-attr]
        raise PermissionDenied("you may not cancel orders")
    if not reason.strip():
        raise ValueError("a reason is needed")

    def record() -> None:
        units = "on sale again" if restock else "withheld"
        audit.record(Order, order_id, user=user, text=f"Cancelled, units {units}: {reason}")

    order = _cancel_one(
        order_id, reason=CancelReason.OPERATOR, restock=restock, owner=None, record=record
    )
    log.info(
        "order_canceled_by_operator",
        order_id=order_id,
        operator=user.get_username(),
        reason=reason,
        restock=restock,
    )
    return order


def cancel_voided(order_ids: Sequence[str]) -> int:
    """Cancel those orders of a voided sale that are still unpaid, whatever their expiry.

    Returns:
        How many were cancelled.

    Cost: as `cancel_unpaid`.
    """
    with transaction.atomic(durable=True):
        now = begin()
        rows = fetch(_LOCK, (sorted(set(order_ids)),))
        unpaid = [order_id for order_id, status, _, _ in rows if status in UNPAID]
        canceled = _cancel(unpaid, reason=CancelReason.OPERATOR, restock=True, now=now)
        faultpoint.hit("cancel.before_commit")
    metrics.CANCEL_TRANSITION.inc(len(canceled))
    return len(canceled)


def _cancel_one(
    order_id: str,
    *,
    reason: CancelReason,
    restock: bool,
    owner: str | None,
    record: Callable[[], None] | None = None,
) -> OrderRecord:
    with transaction.atomic(durable=True):
        now = begin()
        rows = fetch(_LOCK, ([order_id],))
        if not rows or (owner is not None and rows[0][3] != owner):
            raise OrderNotFound(order_id)
        status = rows[0][1]
        if status not in UNPAID:
            raise OrderStateConflict(status)
        if record is not None:
            record()
        (order,) = _cancel([order_id], reason=reason, restock=restock, now=now)
        faultpoint.hit("cancel.before_commit")
    metrics.CANCEL_TRANSITION.inc()
    return order


def _cancel(
    order_ids: Sequence[str], *, reason: CancelReason, restock: bool, now: datetime
) -> list[OrderRecord]:
    """Cancel locked orders: order, reservation, messages, ledger and stock in this transaction."""
    if not order_ids:
        return []
    canceled = [order_record(row) for row in fetch(_CANCEL, (now, reason.value, list(order_ids)))]
    end_orders(canceled, event_type=ORDER_CANCELED, restock=restock, now=now)
    return canceled

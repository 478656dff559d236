"""CREATED or PAYING becomes PAID: whoever changes the row first wins.

A payment past expires_at is accepted while the order is not cancelled. One that meets a cancelled
order is refused here; what was captured for it is then refunded by the payment's own machine.
"""

from datetime import datetime
from typing import Final

from django.db import transaction

from messaging import outbox
from orders.contracts import ORDER_PAID
from orders.database import begin, fetch
from orders.errors import OrderNotFound, OrderStateConflict
from orders.events import ORDER_COLUMNS, OrderRecord, order_event, order_record
from orders.states import OrderStatus

_PAY: Final = f"""
UPDATE orders_order o
   SET status = 'PAID', paid_at = %s::timestamptz, payment_id = %s,
       aggregate_version = o.aggregate_version + 1
 WHERE o.order_id = %s AND o.status IN ('CREATED', 'PAYING')
RETURNING {ORDER_COLUMNS}
"""  # noqa: S608 - constants

_READ: Final = f"SELECT {ORDER_COLUMNS} FROM orders_order o WHERE o.order_id = %s"  # noqa: S608


def pay(*, order_id: str, payment_id: str, now: datetime) -> OrderRecord | None:
    """Pay an unpaid order inside the caller's transaction, with its event.

    Returns:
        The paid order; None when it is not unpaid any more: nothing changed.

    Cost: two statements on one row; no stock.
    """
    rows = fetch(_PAY, (now, payment_id, order_id))
    if not rows:
        return None
    order = order_record(rows[0])
    outbox.add([order_event(ORDER_PAID, order, now=now)])
    return order


def mark_paid(*, order_id: str, payment_id: str) -> OrderRecord:
    """Record a captured payment of an order.

    Args:
        order_id: the order.
        payment_id: the provider's or attempt's id; the same one again is answered alike.

    Returns:
        The order as it is now.

    Raises:
        OrderNotFound: there is no such order.
        OrderStateConflict: it is cancelled, or was paid by another payment.

    Cost: one transaction of three statements on one row; no stock.
    """
    with transaction.atomic(durable=True):
        now = begin()
        paid = pay(order_id=order_id, payment_id=payment_id, now=now)
        if paid is not None:
            return paid
        rows = fetch(_READ, (order_id,))
    if not rows:
        raise OrderNotFound(order_id)
    order = order_record(rows[0])
    if order.status == OrderStatus.PAID and order.payment_id == payment_id:
        return order
    raise OrderStateConflict(order.status)

"""CREATED or PAYING becomes PAID: whoever changes the row first wins.

A payment past expires_at is accepted while the order is not cancelled. One that meets a cancelled
order is refused here; what was captured for it is then refunded by the payment's own machine.
"""

from datetime import datetime
from typing import Final

from messaging import outbox
from orders.contracts import ORDER_PAID
from orders.database import fetch
from orders.events import ORDER_COLUMNS, OrderRecord, order_event, order_record

_PAY: Final = f"""
UPDATE orders_order o
   SET status = 'PAID', paid_at = %s::timestamptz, payment_id = %s,
       aggregate_version = o.aggregate_version + 1
 WHERE o.order_id = %s AND o.status IN ('CREATED', 'PAYING')
RETURNING {ORDER_COLUMNS}
"""  # noqa: S608 - constants


def mark_paid(*, order_id: str, payment_id: str, now: datetime) -> OrderRecord | None:
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

"""Buyers who pay, through the service that the payment provider's answer will call."""

import hashlib

from django.db import connection

from orders.errors import OrderStateConflict
from orders.pay_order import mark_paid
from seckill.demo.sale import Sale

_UNPAID = """
SELECT order_id FROM orders_order
WHERE activity_id = %s AND status = 'CREATED' AND NOT order_id = ANY(%s)
ORDER BY created_at LIMIT %s
"""


class Payers:
    """Decides for each order once whether it is paid.

    Args:
        sale: whose orders.
        share: of the first buyers who pay; the others let their time run out.
    """

    def __init__(self, sale: Sale, *, share: float) -> None:
        self._sale = sale
        self._share = share
        self._forgetful: list[str] = []
        self.everybody = False  # who gets a returned unit does not let it go again
        self.paid = 0

    def pay_some(self, limit: int = 100) -> int:
        """Look at up to `limit` unpaid orders and pay those whose buyers pay; return how many."""
        with connection.cursor() as cursor:
            cursor.execute(_UNPAID, [self._sale.activity_id, self._forgetful, limit])
            order_ids = [row[0] for row in cursor.fetchall()]
        paid = 0
        for order_id in order_ids:
            if self.everybody or _place(order_id) < self._share:
                try:
                    mark_paid(order_id=order_id, payment_id=f"demo-{order_id}")
                except OrderStateConflict:
                    continue  # its time ran out just now
                paid += 1
            else:
                self._forgetful.append(order_id)
        self.paid += paid
        return paid


def _place(order_id: str) -> float:
    """Return a number in [0, 1) that belongs to the order."""
    return hashlib.blake2b(order_id.encode(), digest_size=2).digest()[0] / 256

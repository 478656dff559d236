"""Buyers who pay, at the payment provider, as they would over the API."""

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from django.db import connection

from orders.errors import OrderStateConflict
from orders.payments.attempts import start_payment
from seckill.demo.sale import Sale

_UNPAID = """
SELECT order_id, user_id FROM orders_order
WHERE activity_id = %s AND status = 'CREATED' AND NOT order_id = ANY(%s)
ORDER BY created_at LIMIT %s
"""
_AT_ONCE: Final = 4


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
            orders = cursor.fetchall()
        payers = []
        for order_id, user_id in orders:
            if self.everybody or _place(order_id) < self._share:
                payers.append((order_id, user_id))
            else:
                self._forgetful.append(order_id)
        if not payers:
            return 0
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            paid = sum(pool.map(_pay, [payers[n::_AT_ONCE] for n in range(_AT_ONCE)]))
        self.paid += paid
        return paid


def _pay(orders: Sequence[tuple[str, str]]) -> int:
    """Pay orders one after the other; return how many were not too late."""
    paid = 0
    try:
        for order_id, user_id in orders:
            try:
                start_payment(order_id=order_id, user_id=user_id)
            except OrderStateConflict:
                continue  # its time ran out just now
            paid += 1
    finally:
        connection.close()
    return paid


def _place(order_id: str) -> float:
    """Return a number in [0, 1) that belongs to the order."""
    return hashlib.blake2b(order_id.encode(), digest_size=2).digest()[0] / 256

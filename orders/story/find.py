"""From any id of a purchase to its reservation."""

import re
from typing import Final

from orders.database import fetch

# reservation, order, request and first message of a purchase share one ULID
_PURCHASE: Final = re.compile(r"(?:rsv|ord|req|evt)_([0-9A-HJKMNP-TV-Z]{26})")

_BY_SUFFIX: Final = "SELECT reservation_id FROM orders_reservation WHERE reservation_id = %s"
_BY_EVENT: Final = """
SELECT o.reservation_id FROM messaging_event_archive e
JOIN orders_order o ON o.order_id = e.aggregate_id WHERE e.event_id = %s
"""
_BY_PAYMENT: Final = """
SELECT o.reservation_id FROM orders_order o WHERE o.order_id = (
    SELECT order_id FROM orders_payment_attempt WHERE attempt_id = %s OR provider_payment_id = %s
    UNION SELECT order_id FROM orders_refund
        WHERE refund_id = %s OR provider_key = %s OR provider_refund_id = %s
    LIMIT 1)
"""


def reservation_of(any_id: str) -> str:
    """Return the reservation that an id belongs to; empty when it is no id of ours.

    Args:
        any_id: reservation, order, request, message, event, payment attempt or refund, ours or
            the provider's. One that PostgreSQL does not know yet may still be at the gate.

    Cost: up to three look-ups by key.
    """
    found = _PURCHASE.fullmatch(any_id)
    if found:
        reservation_id = f"rsv_{found[1]}"
        if fetch(_BY_SUFFIX, (reservation_id,)):
            return reservation_id
        rows = fetch(_BY_EVENT, (any_id,))
        return str(rows[0][0]) if rows else reservation_id
    rows = fetch(_BY_PAYMENT, (any_id,) * 5)
    return str(rows[0][0]) if rows else ""

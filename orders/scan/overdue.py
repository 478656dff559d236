"""The second net for unpaid orders: those whose cancel trigger is late are cancelled here."""

from typing import Final

from orders.cancel_order import cancel_unpaid
from orders.database import fetch

# Triggers come 1 to 10 s after expiry; this job looks after them.
GRACE_S: Final = 15
BATCH: Final = 200

_OVERDUE: Final = """
SELECT order_id FROM orders_order
 WHERE status IN ('CREATED', 'PAYING')
   AND expires_at <= clock_timestamp() - %s * interval '1 second'
 ORDER BY expires_at
 LIMIT %s
"""


class OverdueJob:
    """Cancels overdue orders, oldest first."""

    name: Final = "overdue"
    tick_s: Final = 1.0

    def run_once(self) -> int:
        """Cancel one batch; returns how many orders were cancelled.

        Cost: one index scan; one cancel transaction when something is found.
        """
        order_ids = [row[0] for row in fetch(_OVERDUE, (GRACE_S, BATCH))]
        return len(cancel_unpaid(order_ids).canceled) if order_ids else 0

    def close(self) -> None:
        """Nothing to close."""

"""Numbers of the books that no event tells: what is overdue, parked, waiting, at work.

Each is a bounded read of a partial index, so that a backlog does not make its own measurement slow.
"""

from typing import Final

from orders import metrics
from orders.database import fetch

LIMIT: Final = 10_000  # nothing is counted beyond
LATE_S: Final = 30  # trigger, jitter and second net have had their time by then

_BOOKS: Final = """
SELECT
  (SELECT count(*) FROM (
     SELECT 1 FROM orders_order WHERE status IN ('CREATED', 'PAYING')
        AND expires_at <= clock_timestamp() - %s * interval '1 second' LIMIT %s) AS late),
  (SELECT coalesce(extract(epoch FROM clock_timestamp() - min(release_due_at)), 0)::float8
     FROM orders_reservation WHERE release_state = 'DUE'),
  (SELECT count(*) FROM (
     SELECT 1 FROM orders_payment_attempt WHERE status = 'SUBMIT_UNKNOWN' LIMIT %s) AS unknown),
  (SELECT count(*) FROM (
     SELECT 1 FROM orders_refund WHERE status IN ('DUE', 'SUBMITTED', 'SUBMIT_UNKNOWN')
     LIMIT %s) AS unsettled),
  (SELECT count(*) FROM (
     SELECT 1 FROM orders_webhook WHERE status = 'PARKED' LIMIT %s) AS parked)
"""

# The server's view of who works and who waits for a lock, for this database.
_ACTIVITY: Final = """
SELECT count(*) FILTER (WHERE state = 'active'),
       count(*) FILTER (WHERE wait_event_type = 'Lock')
  FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""


class GaugesJob:
    """Reads them every 5 s; several scanners read the same."""

    name: Final = "gauges"
    tick_s: Final = 5.0

    def run_once(self) -> int:
        """Set the gauges; returns how many orders are overdue. Cost: two statements."""
        ((late, release_s, unknown, unsettled, parked),) = fetch(
            _BOOKS, (LATE_S, LIMIT, LIMIT, LIMIT, LIMIT)
        )
        metrics.OVERDUE.set(late)
        metrics.RELEASE_OLDEST.set(release_s)
        metrics.PAYMENT_UNKNOWN.set(unknown)
        metrics.REFUND_UNSETTLED.set(unsettled)
        metrics.WEBHOOK_PARKED.set(parked)
        ((active, waiting),) = fetch(_ACTIVITY, ())
        metrics.PG_ACTIVE.set(active)
        metrics.PG_LOCK_WAITERS.set(waiting)
        return int(late)

    def close(self) -> None:
        """Nothing to close."""

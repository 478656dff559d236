"""Old runs go: what was repaired long ago is in the logs, what is open is an item."""

from typing import Final

from orders.database import execute

KEEP_DAYS: Final = 90
KEEP_QUIET_DAYS: Final = 7

_FINDINGS: Final = """
DELETE FROM orders_reconcile_finding f USING orders_reconcile_run r
 WHERE r.id = f.run_id AND r.started_at < now() - %s * interval '1 day'
"""
_RUNS: Final = """
DELETE FROM orders_reconcile_run
 WHERE started_at < now() - %s * interval '1 day'
    OR (found = 0 AND failed = '[]'::jsonb AND started_at < now() - %s * interval '1 day')
"""


def drop_old_runs() -> int:
    """Delete runs after 90 days, those that found nothing after 7; returns how many."""
    execute(_FINDINGS, (KEEP_DAYS,))
    return execute(_RUNS, (KEEP_DAYS, KEEP_QUIET_DAYS))

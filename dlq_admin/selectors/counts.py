"""Numbers beside the navigation: counted no further than they are shown."""

from typing import Final

from django.db import connection

_LIMIT: Final = 100
_BADGES: Final = """
SELECT (SELECT count(*) FROM (
            SELECT 1 FROM dlq_ticket WHERE status IN ('NEW', 'REOPENED') LIMIT %s) AS fresh),
       (SELECT count(*) FROM (
            SELECT 1 FROM dlq_admin_replay_batch WHERE status = 'PENDING_APPROVAL'
            UNION ALL SELECT 1 FROM dlq_admin_break_glass WHERE approved_at IS NULL
            LIMIT %s) AS due)
"""


def badges() -> dict[str, str]:
    """Return how many tickets nobody has taken, and how many plans wait. One statement."""
    with connection.cursor() as cursor:
        cursor.execute(_BADGES, [_LIMIT, _LIMIT])
        fresh, due = cursor.fetchone()
    return {"inbox": _shown(fresh), "approvals": _shown(due)}


def _shown(count: int) -> str:
    return "" if not count else f"{_LIMIT - 1}+" if count >= _LIMIT else str(count)

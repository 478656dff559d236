"""Drives releases that are due for too long: their message was lost, deferred, or is late."""

from typing import Final

from django.conf import settings

from orders.database import fetch
from orders.release import release_reservations

BATCH: Final = 200

# A keyset cursor: sales whose gate answers RETRY must not keep the others from their turn.
_DUE: Final = """
SELECT reservation_id, release_due_at FROM orders_reservation
 WHERE release_state = 'DUE' AND release_due_at <= clock_timestamp() - %s * interval '1 second'
   AND (release_due_at, reservation_id) > (%s::timestamptz, %s)
 ORDER BY release_due_at, reservation_id
 LIMIT %s
"""
_START: Final = ("-infinity", "")


class ReleaseJob:
    """Releases overdue rows, a page a round, and starts over at the end."""

    name: Final = "release"
    tick_s: Final = 1.0

    def __init__(self) -> None:
        self._after: tuple[object, str] = _START

    def run_once(self) -> int:
        """Drive one page; returns how many reservations were released.

        Raises:
            TransientError: Redis cannot be reached.

        Cost: one index scan; three statements and one Lua call per sale when something is found.
        """
        rows = fetch(_DUE, (settings.SECKILL_RELEASE_OVERDUE_S, *self._after, BATCH))
        self._after = (rows[-1][1], rows[-1][0]) if len(rows) == BATCH else _START
        return len(release_reservations(row[0] for row in rows).released) if rows else 0

    def close(self) -> None:
        """Nothing to close."""

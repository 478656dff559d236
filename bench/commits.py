"""When reservations became orders, read afterwards: the measured system pays nothing for it."""

from collections.abc import Collection
from dataclasses import dataclass

from django.db import connection

from bench.loadgen.histogram import Histogram, upper_edge_us

# The item's row: the others change when an order is paid, cancelled or given back.
_TIMES = """
SELECT reservation_id,
       extract(epoch FROM reservation.valid_until) - %(validity)s,
       extract(epoch FROM {committed})
FROM orders_reservation AS reservation JOIN orders_item AS item USING (order_id)
WHERE activity_id = %(activity)s AND outcome = 'ORDERED'
"""


@dataclass(frozen=True, kw_only=True)
class Commits:
    """Instants (epoch seconds) of one activity, ascending, and lateness of each reservation."""

    committed_s: list[float]
    lateness: Histogram
    exact: bool  # commit times; otherwise the start of each transaction

    @property
    def count(self) -> int:
        """Orders."""
        return len(self.committed_s)

    def in_time(self, limit_ms: float) -> int:
        """Return how many were committed at most so long after their reservation."""
        return sum(
            count
            for bucket, count in enumerate(self.lateness.counts)
            if upper_edge_us(bucket) <= limit_ms * 1000
        )

    def reached_s(self, share: float) -> float:
        """Return the instant at which this share of the orders was committed."""
        return self.committed_s[max(0, int(self.count * share + 0.5) - 1)]

    def rate(self, share: float = 0.99) -> float:
        """Return orders per second from the first commit to this share of them."""
        span = self.reached_s(share) - self.committed_s[0]
        return self.count * share / span if span > 0 else 0.0


def read_commits(
    activity_id: int, *, validity_s: int, only: Collection[str] | None = None
) -> Commits:
    """Read the commit times of an activity.

    Args:
        activity_id: the sale.
        validity_s: its reservations' validity: `valid_until` minus that is when one was made.
        only: reservation ids; None for all.
    """
    with connection.cursor() as cursor:
        cursor.execute("SHOW track_commit_timestamp")
        exact = cursor.fetchone()[0] == "on"
        committed = "pg_xact_commit_timestamp(item.xmin)" if exact else "reservation.created_at"
        cursor.execute(
            _TIMES.format(committed=committed), {"activity": activity_id, "validity": validity_s}
        )
        rows = [
            (float(reserved), float(at))
            for name, reserved, at in cursor.fetchall()
            if only is None or name in only
        ]
    lateness = Histogram()
    for reserved, at in rows:
        lateness.add(int((at - reserved) * 1e6))
    return Commits(committed_s=sorted(at for _, at in rows), lateness=lateness, exact=exact)

"""The first window of days of a table that a migration made, as it was made when it was written.

Days are made later by messaging/partitions.py: it may change, what a migration did may not.
"""

from datetime import UTC, date, datetime, time, timedelta

from django.conf import settings

CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def make_first_days(cursor, table, *, by_time=False):
    """Make the days from yesterday to SECKILL_PARTITION_DAYS_AHEAD days from now.

    A day is a range of message ids by the milliseconds in them, or of `created_at` when `by_time`.
    """
    today = datetime.now(tz=UTC).date()
    for offset in range(-1, settings.SECKILL_PARTITION_DAYS_AHEAD + 1):
        day = today + timedelta(days=offset)
        low, high = (
            (f"{edge.isoformat()} 00:00:00+00" if by_time else _message_id(edge))
            for edge in (day, day + timedelta(days=1))
        )
        name = f"{table}_{day:%Y%m%d}"
        cursor.execute(
            f"CREATE TABLE {name} (LIKE {table} INCLUDING ALL EXCLUDING IDENTITY) WITH ("
            "autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.2)"
        )
        cursor.execute(
            f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ('{low}') TO ('{high}')"
        )


def _message_id(day: date) -> str:
    value = int(datetime.combine(day, time(), tzinfo=UTC).timestamp() * 1000)
    digits = []
    for _ in range(10):
        value, digit = divmod(value, 32)
        digits.append(CROCKFORD[digit])
    return "evt_" + "".join(reversed(digits))

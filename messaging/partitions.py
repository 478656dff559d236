"""The window of days of inbox, outbox and event archive, kept ahead by Celery.

Migrations make the first window (messaging/migrations/_first_days.py).

A day of the outbox is a range of `created_at`; a day of the others is the range of message ids
whose ULID was drawn on that day (the first 10 characters of a ULID are its milliseconds). What fits
no day falls into the DEFAULT partition, which is watched: a day whose rows already lie there can be
made only after these rows were moved, so `ensure_partitions` reports such a day and goes on.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

import structlog
from django.db import DatabaseError, connection, transaction

INBOX_TABLE: Final = "messaging_inbox"
OUTBOX_TABLE: Final = "messaging_outbox"
ARCHIVE_TABLE: Final = "messaging_event_archive"
TABLES: Final = (INBOX_TABLE, OUTBOX_TABLE, ARCHIVE_TABLE)

_CROCKFORD: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LOCK_KEY: Final = 7_205_301  # one maker of days at a time
_DAYS_BACK: Final = 1  # messages of yesterday evening may still be on their way

log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionReport:
    """What `ensure_partitions` did: names of new partitions, and of days it could not make."""

    made: tuple[str, ...]
    failed: tuple[str, ...]


def message_id_bound(day: date) -> str:
    """Return the smallest message id of a day: `evt_` + the 10 time characters of its first ms."""
    return message_id_at(datetime.combine(day, time(), tzinfo=UTC))


def partition_name(table: str, day: date) -> str:
    """Return the name of a day's partition, for example `messaging_inbox_20260131`."""
    return f"{table}_{day:%Y%m%d}"


def ensure_partitions(days_ahead: int, *, today: date | None = None) -> PartitionReport:
    """Make the missing days from yesterday to `days_ahead` days from now; safe to repeat.

    Args:
        days_ahead: days to keep ready after today.
        today: the day to count from (UTC); today when None.

    Returns:
        The partitions made, and those that could not be made (rows of that day lie in DEFAULT, or
        the lock was not had in 2 s): the next run tries again.

    Cost:
        One catalogue read; for each new day one short transaction with ATTACH PARTITION, which
        locks only the (empty) DEFAULT partition exclusively.
    """
    first = (today or datetime.now(tz=UTC).date()) - timedelta(days=_DAYS_BACK)
    made: list[str] = []
    failed: list[str] = []
    existing = _existing()
    for table in TABLES:
        for offset in range(days_ahead + _DAYS_BACK + 1):
            name = partition_name(table, first + timedelta(days=offset))
            if name in existing:
                continue
            try:
                if _make(table=table, name=name, day=first + timedelta(days=offset)):
                    made.append(name)
            except DatabaseError as error:
                failed.append(name)
                log.error("partition_not_made", partition=name, error=str(error))
    return PartitionReport(made=tuple(made), failed=tuple(failed))


def days_left(today: date | None = None) -> int:
    """Return for how many days after today all tables are ready without a gap.

    -1 when today itself is missing. Readiness is red below 3.
    """
    day = today or datetime.now(tz=UTC).date()
    existing = _existing()
    left = -1
    while all(partition_name(table, day) in existing for table in TABLES):
        left += 1
        day += timedelta(days=1)
    return left


def default_rows() -> dict[str, int]:
    """Return how many rows lie in each DEFAULT partition, counted up to 1 000; 0 is good."""
    counts = {}
    with connection.cursor() as cursor:
        for table in TABLES:
            cursor.execute(f"SELECT count(*) FROM (SELECT 1 FROM {table}_default LIMIT 1000)")  # noqa: S608
            counts[table] = int(cursor.fetchone()[0])
    return counts


def table_bytes() -> dict[str, int]:
    """Return what each table takes on disk, all days and indexes together. One statement."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT name, (SELECT sum(pg_total_relation_size(relid))"
            " FROM pg_partition_tree(name::regclass)) FROM unnest(%s::text[]) AS name",
            [list(TABLES)],
        )
        return {name: int(size) for name, size in cursor.fetchall()}


def days(table: str) -> list[date]:
    """Return the days that a table has, oldest first; DEFAULT is none. One catalogue read."""
    prefix = f"{table}_"
    found = (name.removeprefix(prefix) for name in _existing() if name.startswith(prefix))
    return sorted(date.fromisoformat(text) for text in found if text.isdigit())


def message_id_at(instant: datetime) -> str:
    """Return the smallest message id whose ULID could be drawn at this instant (to the ms)."""
    value = int(instant.timestamp() * 1000)
    digits = []
    for _ in range(10):
        value, digit = divmod(value, 32)
        digits.append(_CROCKFORD[digit])
    return "evt_" + "".join(reversed(digits))


def _existing() -> frozenset[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits"
            " WHERE inhparent IN (SELECT to_regclass(name) FROM unnest(%s::text[]) AS t(name))",
            [list(TABLES)],
        )
        return frozenset(name for (name,) in cursor.fetchall())


def _make(*, table: str, name: str, day: date) -> bool:
    """Make one day in one short transaction; False when another process made it meanwhile."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL lock_timeout = '2s'")
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK_KEY])
        cursor.execute("SELECT to_regclass(%s)", [name])
        if cursor.fetchone()[0] is not None:
            return False
        for statement in _statements(table=table, name=name, day=day):
            cursor.execute(statement)
    return True


def _statements(*, table: str, name: str, day: date) -> Iterator[str]:
    """Yield the DDL of one day. All parts are our own constants: DDL takes no parameters."""
    following = day + timedelta(days=1)
    if table != OUTBOX_TABLE:
        low, high = message_id_bound(day), message_id_bound(following)
    else:
        low, high = f"{day.isoformat()} 00:00:00+00", f"{following.isoformat()} 00:00:00+00"
    # LIKE + ATTACH instead of PARTITION OF: it leaves readers and writers of the parent alone.
    yield (
        f"CREATE TABLE {name} (LIKE {table} INCLUDING ALL EXCLUDING IDENTITY)"
        " WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.2)"
    )
    yield f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ('{low}') TO ('{high}')"

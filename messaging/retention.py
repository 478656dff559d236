"""Drops the days that nobody needs any more; a day with anything unfinished in it stays.

A day goes when its last instant is older than the table's horizon: DETACH and DROP in one short
transaction that looks once more under its lock. Unsent rows, messages whose quarantine row is open,
and events that are in no file yet keep their day: it is named in the report and counted, and the
next run tries again. `manage.py run_retention --dry-run` shows what would happen.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

import structlog
from django.conf import settings
from django.db import DatabaseError, connection, transaction

from messaging import event_export, metrics, partitions, quarantine
from messaging.event_export import ExportedDay
from messaging.partitions import ARCHIVE_TABLE, INBOX_TABLE, OUTBOX_TABLE, message_id_bound

log = structlog.get_logger(__name__)

_UNSENT: Final = "SELECT EXISTS (SELECT 1 FROM {partition} WHERE state = 0)"

# Rows that were given up and wait for a person.
_GIVEN_UP: Final = """
SELECT EXISTS (
    SELECT 1 FROM {partition} o
    JOIN messaging_quarantine q ON q.consumer_group = %s AND q.message_id = o.event_id
    WHERE o.state = 2 AND q.status = 'OPEN')
"""

# A message of this day waits for a person: its replay must still meet what the others did.
_OPEN_ITEM: Final = """
SELECT EXISTS (
    SELECT 1 FROM messaging_quarantine
    WHERE status = 'OPEN' AND message_id >= %s AND message_id < %s)
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class RefusedDay:
    """A day that is past its horizon and stays, and why."""

    partition: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RetentionReport:
    """Names of dropped partitions (in a dry run: that would be), files written, days refused."""

    dropped: tuple[str, ...]
    exported: tuple[str, ...]
    refused: tuple[RefusedDay, ...]


class _Refused(Exception):
    """The day must stay."""


def run(*, now: datetime | None = None, dry_run: bool = False) -> RetentionReport:
    """Drop every day of inbox, outbox and event archive that is past its horizon.

    Args:
        now: the instant to count from; the clock when None.
        dry_run: look only.

    Returns:
        What was done and what was refused.

    Cost: one catalogue read a table; a short ACCESS EXCLUSIVE lock a dropped day (given up after
    2 s: the next run tries again); the archive's days are read once for their file.
    """
    today = (now or datetime.now(tz=UTC)).astimezone(UTC).date()
    dropped: list[str] = []
    exported: list[str] = []
    refused: list[RefusedDay] = []
    for table, horizon_days in _horizons():
        for day in partitions.days(table):
            # The day's last instant must be older than the horizon.
            if day + timedelta(days=1) > today - timedelta(days=horizon_days):
                break
            name = partitions.partition_name(table, day)
            try:
                _require_finished(table, day)
                file = _export(day, dry_run=dry_run) if table == ARCHIVE_TABLE else None
                if file is not None:
                    exported.append(file.file)
                if not dry_run:
                    _drop(table, day, exported=file)
                dropped.append(name)
            except _Refused as error:
                refused.append(RefusedDay(partition=name, reason=str(error)))
            except (DatabaseError, OSError) as error:
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                refused.append(RefusedDay(partition=name, reason=reason))
    if not dry_run:
        metrics.RETENTION_REFUSED.set(len(refused))
        for item in refused:
            log.error("retention_refused", partition=item.partition, reason=item.reason)
        if dropped:
            log.info("retention_dropped", partitions=dropped, files=exported)
    return RetentionReport(dropped=tuple(dropped), exported=tuple(exported), refused=tuple(refused))


def _horizons() -> Sequence[tuple[str, int]]:
    return (
        (INBOX_TABLE, settings.SECKILL_INBOX_DAYS),
        (OUTBOX_TABLE, settings.SECKILL_OUTBOX_DAYS),
        (ARCHIVE_TABLE, settings.SECKILL_ARCHIVE_DAYS),
    )


def _require_finished(table: str, day: date) -> None:
    """Refuse a day with unsent or unresolved rows. Two statements on small indexes."""
    name = partitions.partition_name(table, day)
    if table == OUTBOX_TABLE:
        if _asks(_UNSENT.format(partition=name)):
            raise _Refused("it has unsent rows")
        if _asks(_GIVEN_UP.format(partition=name), quarantine.OUTBOX_GROUP):
            raise _Refused("a row that was given up waits for a person")
    elif _asks(_OPEN_ITEM, message_id_bound(day), message_id_bound(day + timedelta(days=1))):
        raise _Refused("a message of this day waits in quarantine")


def _export(day: date, *, dry_run: bool) -> ExportedDay | None:
    """Write the day's file and read it back."""
    if not settings.SECKILL_ARCHIVE_DIR:
        raise _Refused("SECKILL_ARCHIVE_DIR is not set: there is nowhere to export it to")
    if dry_run:
        return None
    folder = Path(settings.SECKILL_ARCHIVE_DIR)
    exported = event_export.export_day(day, folder)
    if event_export.rows_of(day, folder) != exported.rows:
        raise _Refused(f"{exported.file} cannot be read back")
    return exported


def _drop(table: str, day: date, *, exported: ExportedDay | None) -> None:
    """Detach and drop a day; everything is looked at again under the lock."""
    name = partitions.partition_name(table, day)
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute("SET LOCAL lock_timeout = '2s'")
        cursor.execute(f"ALTER TABLE {table} DETACH PARTITION {name}")
        _require_finished(table, day)
        if exported is not None:
            cursor.execute(f"SELECT count(*) FROM {name}")  # noqa: S608 - a name of ours
            (rows,) = cursor.fetchone()
            if rows != exported.rows:  # one came while the file was written
                raise _Refused(f"{exported.file} holds {exported.rows} of {rows} events")
        cursor.execute(f"DROP TABLE {name}")


def _asks(sql: str, *params: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return bool(cursor.fetchone()[0])

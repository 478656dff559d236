"""One day of the event archive as a file: JSON lines, gzipped, with a chained manifest.

The same day is exported to the same bytes, so a repeat after a crash changes nothing. Each line of
`manifest.jsonl` names a file, its SHA-256 and the digest of the line before: `verify` finds a file
that is lost, changed or put in later. A day that got an event while it was written is exported once
more: its file has a second line then, and only the newest one says what the file must be.
"""

import gzip
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final

from django.db import connection, transaction

from messaging.partitions import ARCHIVE_TABLE, partition_name

MANIFEST: Final = "manifest.jsonl"
_CHUNK: Final = 2_000

_DECLARE: Final = """
DECLARE event_export NO SCROLL CURSOR FOR
SELECT event_id, topic, tag, aggregate_id, aggregate_version, activity_id, occurred_at, received_at,
    keys, properties::text, body
FROM {partition} ORDER BY occurred_at, aggregate_version, event_id
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportedDay:
    """A file and what it holds."""

    file: str
    rows: int
    sha256: str


def export_day(day: date, folder: Path) -> ExportedDay:
    """Write a day's events to `folder`, durable when this returns, and note it in the manifest.

    Args:
        day: a day that has a partition and gets no more rows.
        folder: made when missing.

    Raises:
        OSError: the file could not be written; nothing may be dropped then.

    Cost: one read of the partition through a cursor, memory for 2 000 events.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"events-{day:%Y%m%d}.jsonl.gz"
    partial = target.with_suffix(".partial")
    rows = 0
    with partial.open("wb") as raw:
        with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed:
            for line in _lines(day):
                packed.write(line)
                rows += 1
        raw.flush()
        os.fsync(raw.fileno())
    partial.replace(target)
    _sync(folder)
    done = ExportedDay(file=target.name, rows=rows, sha256=_digest(target))
    _note(folder, done)
    return done


def rows_of(day: date, folder: Path) -> int:
    """Return how many events a day's file really holds; -1 when there is none. Reads the file."""
    path = folder / f"events-{day:%Y%m%d}.jsonl.gz"
    if not path.exists():
        return -1
    with gzip.open(path) as lines:
        return sum(1 for _ in lines)


def files(folder: Path) -> list[Path]:
    """Return the exported days of a folder, oldest first."""
    return sorted(folder.glob("events-*.jsonl.gz"))


def verify(folder: Path) -> list[str]:
    """Return what is wrong with the files of a folder; empty when every one is as it was written.

    A folder without a manifest is wrong, too: the first export writes one, and a wiped archive must
    not pass.

    Cost: reads every file.
    """
    problems: list[str] = []
    previous = ""
    newest: dict[str, str] = {}  # file → SHA-256: a later line stands for a later export
    manifest = _manifest(folder)
    if not manifest:
        problems.append(f"{folder / MANIFEST} is missing or empty")
    for number, line in enumerate(manifest, start=1):
        try:
            entry = json.loads(line)
            newest[entry["file"]] = entry["sha256"]
            follows = entry["previous"] == previous
        except (ValueError, KeyError, TypeError):
            problems.append(f"line {number} of the manifest cannot be read")
            follows = True
        if not follows:
            problems.append(f"line {number} of the manifest does not follow the one before")
        previous = hashlib.sha256(line).hexdigest()
    for name, sha256 in newest.items():
        path = folder / name
        if not path.exists():
            problems.append(f"{name} is missing")
        elif _digest(path) != sha256:
            problems.append(f"{name} was changed")
    for path in files(folder):
        if path.name not in newest:
            problems.append(f"{path.name} is not in the manifest")
    return problems


def _lines(day: date) -> Iterator[bytes]:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_DECLARE.format(partition=partition_name(ARCHIVE_TABLE, day)))
        while True:
            cursor.execute(f"FETCH {_CHUNK} FROM event_export")
            rows = cursor.fetchall()
            if not rows:
                return
            for row in rows:
                yield json.dumps(_document(row), separators=(",", ":")).encode() + b"\n"


def _document(row: tuple[Any, ...]) -> dict[str, Any]:
    body = bytes(row[10])
    try:
        kept = {"body": body.decode()}
    except UnicodeDecodeError:
        kept = {"body_hex": body.hex()}
    return {
        "event_id": row[0],
        "topic": row[1],
        "tag": row[2],
        "aggregate_id": row[3],
        "aggregate_version": row[4],
        "activity_id": row[5],
        "occurred_at": row[6].isoformat(),
        "received_at": row[7].isoformat(),
        "keys": row[8],
        "properties": json.loads(row[9]),
        **kept,
    }


def _note(folder: Path, day: ExportedDay) -> None:
    """Append to the manifest, unless the last entry of this file says the same."""
    lines = _manifest(folder)
    entries = [json.loads(line) for line in lines]
    latest = [entry for entry in entries if entry["file"] == day.file]
    if latest and latest[-1]["sha256"] == day.sha256:
        return
    entry = {
        "file": day.file,
        "rows": day.rows,
        "sha256": day.sha256,
        "previous": hashlib.sha256(lines[-1]).hexdigest() if lines else "",
    }
    with (folder / MANIFEST).open("ab") as manifest:
        manifest.write(json.dumps(entry, separators=(",", ":")).encode() + b"\n")
        manifest.flush()
        os.fsync(manifest.fileno())


def _manifest(folder: Path) -> list[bytes]:
    path = folder / MANIFEST
    return path.read_bytes().splitlines() if path.exists() else []


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

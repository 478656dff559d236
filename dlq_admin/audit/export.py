"""Handing the audit record out: JSON lines for machines, CSV for spreadsheets.

A CSV cell that a spreadsheet would run as a formula gets an apostrophe before it.
"""

import csv
import io
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec
from django.db import connection

from dlq_admin import access, permissions
from dlq_admin.audit.record import record

if TYPE_CHECKING:
    from django.contrib.auth.models import User

_PAGE: Final = 1_000
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%")
COLUMNS: Final = ("ticket", "seq", "at", "kind", "actor", "detail", "prev_hash", "hash")

_EVENTS: Final = """
SELECT id, chain, seq, at, kind, actor, detail, prev_hash, hash FROM dlq_admin_audit_event
 WHERE id > %s AND (%s::bigint IS NULL OR chain = %s::bigint)
   AND (%s::timestamptz IS NULL OR at >= %s::timestamptz)
   AND (%s::timestamptz IS NULL OR at < %s::timestamptz)
 ORDER BY id LIMIT %s
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditLine:
    """An event as it is handed out. `ticket` is 0 for what belongs to no ticket."""

    ticket: int
    seq: int
    at: datetime
    kind: str
    actor: str
    detail: str
    prev_hash: str
    hash: str


def events(
    *,
    ticket_id: int | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Iterator[AuditLine]:
    """Yield events in the order they were written, page by page."""
    after = 0
    while True:
        with connection.cursor() as cursor:
            cursor.execute(
                _EVENTS, [after, ticket_id, ticket_id, since, since, until, until, _PAGE]
            )
            page = cursor.fetchall()
        for row in page:
            yield AuditLine(
                ticket=row[1],
                seq=row[2],
                at=row[3],
                kind=row[4],
                actor=row[5],
                detail=row[6],
                prev_hash=row[7],
                hash=row[8],
            )
        if len(page) < _PAGE:
            return
        after = page[-1][0]


def export(
    *,
    user: "User",
    form: str,
    ticket_id: int | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Iterator[str]:
    """Return lines to stream; that somebody exported is an event itself.

    Args:
        user: needs `dlq_admin.export_audit`.
        form: "jsonl" or "csv".
        ticket_id: only this ticket's.
        since: first instant, aware.
        until: instant after the last one.

    Raises:
        PermissionDenied: the user may not.
        ValueError: another form.
    """
    access.require(user, permissions.EXPORT_AUDIT)
    if form not in ("jsonl", "csv"):
        raise ValueError(f"no such form: {form}")
    record(
        ticket_id=ticket_id,
        kind="AUDIT_EXPORTED",
        actor=user,
        detail={
            "form": form,
            "since": since.isoformat() if since else "",
            "until": until.isoformat() if until else "",
        },
    )
    found = events(ticket_id=ticket_id, since=since, until=until)
    return csv_lines(found) if form == "csv" else json_lines(found)


def json_lines(found: Iterator[AuditLine]) -> Iterator[str]:
    """Yield one JSON object a line."""
    for line in found:
        row = asdict(line) | {"detail": msgspec.Raw(line.detail.encode())}
        yield msgspec.json.encode(row).decode() + "\n"


def csv_lines(found: Iterator[AuditLine]) -> Iterator[str]:
    """Yield a heading and one row for each event."""
    yield _csv(COLUMNS)
    for line in found:
        yield _csv(
            [
                line.ticket, line.seq, line.at.isoformat(), line.kind, line.actor, line.detail,
                line.prev_hash, line.hash,
            ]
        )  # fmt: skip


def safe_cell(value: Any) -> str:
    """Return a cell's text that no spreadsheet takes for a formula."""
    text = str(value)
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text


def _csv(cells: Any) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerow([safe_cell(cell) for cell in cells])
    return out.getvalue()

"""Events of the audit record for its explorer and for a ticket's time line."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from dlq_admin.models.audit import AuditAnchor, AuditEvent

_BAD: Final = ("FAILED", "BREACH", "REJECTED", "ABORTED", "WRONG", "EXPIRED", "STALE", "REOPENED")
_GOOD: Final = ("VERIFIED", "CLOSED", "APPROVED", "COMPLETED", "PROCESSED", "COMPENSATED")
_HASH_SHOWN: Final = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class EventLine:
    """An event. `detail` is what it was recorded with; `tone` is how it looks."""

    id: int
    ticket_id: int
    seq: int
    at: datetime
    kind: str
    actor: str
    detail: Mapping[str, Any]
    prev: str
    hash: str
    tone: str


def event_page(
    *, before: int, limit: int, ticket_id: int | None = None, actor: str = "", kind: str = ""
) -> list[EventLine]:
    """Return events with smaller ids, the newest first. One statement.

    Args:
        before: id to end before.
        limit: at most so many.
        ticket_id: only this ticket's; 0 for what belongs to none.
        actor: only what this user did.
        kind: only events whose kind begins so.
    """
    found = AuditEvent.objects.filter(pk__lt=before)
    if ticket_id is not None:
        found = found.filter(chain=ticket_id)
    if actor:
        found = found.filter(actor=actor)
    if kind:
        found = found.filter(kind__startswith=kind)
    return [_line(row) for row in found.order_by("-pk")[:limit]]


def newest_anchor() -> tuple[datetime, str] | None:
    """Return when the newest anchor was written, and its hash."""
    row = AuditAnchor.objects.order_by("-pk").first()
    return (row.at, row.hash) if row else None


def _line(row: AuditEvent) -> EventLine:
    return EventLine(
        id=row.pk,
        ticket_id=row.chain,
        seq=row.seq,
        at=row.at,
        kind=row.kind,
        actor=row.actor,
        detail=_detail(row.detail),
        prev=row.prev_hash[:_HASH_SHOWN],
        hash=row.hash[:_HASH_SHOWN],
        tone=_tone(row.kind),
    )


def _detail(text: str) -> Mapping[str, Any]:
    """Read a detail; one that somebody broke is shown as it is."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return {"unreadable": text}
    return value if isinstance(value, dict) else {"value": value}


def _tone(kind: str) -> str:
    if any(word in kind for word in _BAD):
        return "bad"
    return "good" if any(word in kind for word in _GOOD) else ""

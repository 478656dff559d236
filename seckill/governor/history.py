"""Decisions as rows: written by the governor, read by admin and monitor, kept for some days."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from django.conf import settings
from django.db.models import F
from django.utils import timezone

from seckill.governor.models import GovernorDecision
from seckill.governor.view import GovernorView

_DELETE_MOST: Final = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Decided:
    """A decision that changed something. `before` is the level it followed."""

    view: GovernorView
    before: str
    leader: str

    @property
    def decided_at(self) -> datetime:
        """The instant, of Redis' clock."""
        return datetime.fromtimestamp(self.view.decided_at_ms / 1000, UTC)


@dataclass(frozen=True, kw_only=True, slots=True)
class DecisionRecord:
    """A stored decision."""

    decided_at: datetime
    level: str
    before: str
    entry_rate: float
    entry_burst: float
    reasons: tuple[str, ...]
    signals: dict[str, Any]


def store(decision: Decided) -> None:
    """Write one decision. One statement."""
    view = decision.view
    GovernorDecision.objects.create(
        decided_at=decision.decided_at,
        level=view.level,
        before=decision.before,
        entry_rate=view.entry_rate,
        entry_burst=view.entry_burst,
        max_open=view.max_open,
        max_pending=view.max_pending,
        drain_per_s=view.drain_per_s,
        reasons=list(view.reasons),
        groups=msgspec.to_builtins(view.groups),
        signals=msgspec.to_builtins(view.signals),
        leader=decision.leader,
    )


def recent(limit: int = 100, *, only_levels: bool = False) -> Sequence[DecisionRecord]:
    """Return the latest decisions, newest first.

    Args:
        limit: at most so many.
        only_levels: only those that changed the level.
    """
    rows = GovernorDecision.objects.order_by("-decided_at", "-pk")
    if only_levels:
        rows = rows.exclude(level=F("before"))
    return [
        DecisionRecord(
            decided_at=row.decided_at,
            level=row.level,
            before=row.before,
            entry_rate=row.entry_rate,
            entry_burst=row.entry_burst,
            reasons=tuple(row.reasons),
            signals=row.signals,
        )
        for row in rows[:limit]
    ]


def delete_old(*, now: datetime | None = None) -> int:
    """Delete decisions older than SECKILL_GOVERNOR_DAYS, ten thousand at most; returns how many."""
    limit = (now or timezone.now()) - timedelta(days=settings.SECKILL_GOVERNOR_DAYS)
    old = GovernorDecision.objects.filter(decided_at__lt=limit).order_by("decided_at")
    ids = list(old.values_list("pk", flat=True)[:_DELETE_MOST])
    deleted, _ = GovernorDecision.objects.filter(pk__in=ids).delete()
    return deleted

"""How the console writes names, spans of time and states: nothing here decides anything."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from django import template
from django.utils import timezone

register = template.Library()

_TONES: Final = {
    **dict.fromkeys(
        ("CLOSED", "VERIFIED", "COMPLETED", "APPROVED", "COMPENSATED", "PROCESSED_OK",
         "PROCESSED_IDEMPOTENT", "WILL_CREATE", "WILL_APPLY", "NOOP", "PASS", "READY",
         "DISCARDED", "ORDERED", "CREATED", "PAID", "SETTLED"), "good"
    ),
    **dict.fromkeys(
        ("NEW", "REOPENED", "VERIFY_FAILED", "FAILED_AGAIN", "SEND_FAILED", "BREACH", "BLOCKED",
         "ABORTED", "COMPLETED_WITH_FAILURES", "FAIL", "SEV1"), "bad"
    ),
    **dict.fromkeys(
        ("WAITING", "PENDING_APPROVAL", "PAUSED", "THROTTLED", "STALE", "SEND_UNKNOWN", "EXPIRED",
         "DISCARD_PENDING", "WILL_REJECT", "REJECTED", "BUSINESS_REJECTED", "DUE", "SEV2", "OPEN",
         "WILL_COMPENSATE", "WILL_DISCARD"), "warn"
    ),
    **dict.fromkeys(
        ("ACKED", "CLASSIFIED", "FIXING", "REPLAYING", "VERIFYING", "CANARY", "RUNNING", "PLANNED",
         "CLAIMED", "SENDING", "SENT"), "info"
    ),
}  # fmt: skip


# What a verdict means for the buyer, in a sentence.
_MEANINGS: Final = {
    "WILL_CREATE": "makes the order: the unit is held, and stock suffices",
    "WILL_REJECT": "rejects the buyer, and gives the unit back",
    "WILL_APPLY": "lets the group's handler do its work once more",
    "WILL_COMPENSATE": "rejects the buyer, and gives the unit back",
    "WILL_DISCARD": "has no effect, for good",
    "NOOP": "changes nothing: its outcome is there already",
    "BLOCKED": "must not be done like this",
    "BREACH": "must not be done: the stores contradict each other; repair them first",
}


@register.filter
def meaning(verdict: Any) -> str:
    """Return what a verdict means, as the rest of a sentence."""
    return _MEANINGS.get(str(verdict), words(verdict))


@register.filter
def beside(row: Sequence[Any], columns: Sequence[str]) -> list[tuple[str, Any]]:
    """Return a row's values, each with the name of its column."""
    return list(zip(columns, row, strict=True))


@register.filter
def tone(status: Any) -> str:
    """Return how a state looks: good, warn, bad, info, or nothing."""
    return _TONES.get(str(status), "")


@register.filter
def words(code: Any) -> str:
    """Return a code as words: PENDING_APPROVAL → pending approval."""
    return str(code).replace("_", " ").lower()


@register.filter
def short_group(name: Any) -> str:
    """Return a consumer group without what all of them share."""
    core = str(name).removeprefix("CG_SECKILL_").removesuffix("_V1").removesuffix("_PG")
    return core.lower().replace("_", "-")


@register.filter
def span(value: Any) -> str:
    """Return seconds or a timedelta as one or two units: 42 s, 3 min, 2 h 5 min, 4 d."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value or 0)
    seconds = int(abs(seconds))
    if seconds < 60:
        return f"{seconds} s"
    minutes = seconds // 60
    if minutes < 60:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    return f"{hours // 24} d"


@register.filter
def ago(at: datetime | None) -> str:
    """Return how long ago an instant was."""
    return span(timezone.now() - at) if at else "-"


@register.filter
def until(at: datetime | None) -> str:
    """Return how long until an instant, or that it has passed."""
    if at is None:
        return "-"
    left = at - timezone.now()
    return span(left) if left > timedelta(0) else f"{span(left)} over"


@register.filter
def shorten(value: Any) -> str:
    """Return a value of an event's detail in a line: a hash is cut, a list joined."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {shorten(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(shorten(item) for item in value[:8])
    text = str(value).strip()
    if text in ("True", "False"):
        return "yes" if text == "True" else "no"
    if len(text) == 64 and all(character in "0123456789abcdef" for character in text):
        return text[:12]
    return text if len(text) <= 160 else f"{text[:160]}…"


@register.filter
def capped(count: int, limit: int = 1_000) -> str:
    """Return a count that was read up to `limit` + 1 as text: 1000+ beyond it."""
    return f"{limit}+" if count > limit else str(count)


@register.filter
def pairs(value: Any) -> list[tuple[Any, Any]]:
    """Return a mapping's pairs; `.items` in a template finds a key of that name first."""
    return list(value.items()) if value else []


@register.filter
def told(value: Any) -> list[tuple[Any, Any]]:
    """Return a mapping's pairs without those that say nothing."""
    return [(name, item) for name, item in pairs(value) if item not in ("", None, [], {})]

"""What a story is made of."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final


class Tone(StrEnum):
    """How an entry looks."""

    PLAIN = ""
    GOOD = "good"
    BAD = "bad"
    WAIT = "wait"


_TONES: Final = {
    "SUCCEEDED": Tone.GOOD,
    "SENT": Tone.GOOD,
    "APPLIED": Tone.GOOD,
    "FAILED": Tone.BAD,
    "UNKNOWN": Tone.BAD,
    "SUBMIT_UNKNOWN": Tone.BAD,
    "TICKETED": Tone.BAD,
    "PENDING": Tone.WAIT,
    "SENDING": Tone.WAIT,
    "DUE": Tone.WAIT,
}


def tone_of(status: str) -> Tone:
    """Return how a status looks."""
    return _TONES.get(status, Tone.PLAIN)


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """Something that happened. `source` is the store or part that says so."""

    at: datetime
    source: str
    title: str
    detail: str = ""
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """The rows of one store, as a table, and what they say about the course of things."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    entries: Sequence[Entry] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Body:
    """A message's body, personal data masked."""

    event_id: str
    tag: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Story:
    """All that is known. `headline` is the state in a word; `notes` are what could not be read."""

    reservation_id: str
    headline: str
    tone: Tone
    ids: Sequence[tuple[str, str]]
    facts: Sequence[tuple[str, Any]]
    gate: Sequence[tuple[str, str]]
    timeline: Sequence[Entry]
    parts: Sequence[Part]
    bodies: Sequence[Body]
    notes: Sequence[str] = field(default=())

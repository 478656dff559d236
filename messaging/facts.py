"""Reads what it can from a body that nobody could handle (pure): for quarantine rows and logs.

Lenient on purpose: every field that is not plainly right is None, nothing raises.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from messaging.envelope import parse_instant

_RESERVATION: Final = re.compile(r"rsv_[0-7][0-9A-HJKMNP-TV-Z]{25}")
_USER: Final = re.compile(r"[A-Za-z0-9_.:@-]{1,64}")
_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class BodyFacts:
    """The reservation that a message speaks of, as far as it can be read."""

    reservation_id: str | None = None
    activity_id: int | None = None
    sku_id: int | None = None
    user_id: str | None = None
    quantity: int | None = None
    valid_until: datetime | None = None


NO_FACTS: Final = BodyFacts()


def read_facts(body: bytes, keys: Sequence[str] = ()) -> BodyFacts:
    """Read the facts from a JSON body; a reservation id that it lacks is looked for in the keys."""
    fields = _object(body)
    reservation_id = _text(fields.get("reservation_id"), _RESERVATION)
    return BodyFacts(
        reservation_id=reservation_id or next(filter(_RESERVATION.fullmatch, keys), None),
        activity_id=_number(fields.get("activity_id"), 2**63 - 1),
        sku_id=_number(fields.get("sku_id"), 2**63 - 1),
        user_id=_text(fields.get("user_id"), _USER),
        quantity=_number(fields.get("quantity"), 2**31 - 1),
        valid_until=_instant(fields.get("reservation_valid_until")),
    )


def printable(text: str) -> str:
    """Return the text as PostgreSQL takes it: no NUL, no lone surrogates."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode()


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _text(value: object, pattern: re.Pattern[str]) -> str | None:
    return value if isinstance(value, str) and pattern.fullmatch(value) else None


def _number(value: object, highest: int) -> int | None:
    return value if type(value) is int and 1 <= value <= highest else None


def _instant(value: object) -> datetime | None:
    if _text(value, _INSTANT) is None:
        return None
    try:
        return parse_instant(str(value))
    except ValueError:
        return None

"""What two deaths have in common (pure): the error without what differs each time."""

import hashlib
import re
from typing import Final

_VARIES: Final = (
    (re.compile(r"\b[a-z]{2,5}_[0-7][0-9A-HJKMNP-TV-Z]{25}\b"), "<id>"),
    (re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "<uuid>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?"), "<time>"),
    (re.compile(r"'[^']*'|\"[^\"]*\""), "<text>"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b|\b(?=[0-9a-f]*\d)[0-9a-f]{16,}\b"), "<hex>"),
    (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), "<mail>"),
    (re.compile(r"\d+"), "<n>"),
    (re.compile(r"\s+"), " "),
)
_SAMPLE: Final = 500


def normalise(error: str) -> str:
    """Return an error text with ids, numbers, instants and quoted texts replaced; ≤ 500 characters.

    No data of a buyer is left in it: it may be shown to everybody and stand in a mail.
    """
    text = error.strip()[:4_000]
    for pattern, mark in _VARIES:
        text = pattern.sub(mark, text)
    return text.strip()[:_SAMPLE]


def fingerprint(*, error_class: str, error: str) -> str:
    """Return 32 hex digits that are equal for equal causes."""
    cause = f"{error_class}\n{normalise(error)}"
    return hashlib.sha256(cause.encode("utf-8", "replace")).hexdigest()[:32]

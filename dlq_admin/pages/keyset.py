"""Pages by key: the next one begins after the last row seen, however long the list is.

A list that is read by page numbers counts and skips; with 100 000 dead messages that is the whole
table for each page.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from django.http import HttpRequest

PER_PAGE: Final = 50
HIGHEST: Final = 2**63 - 1
_LONGEST: Final = 120

Row = TypeVar("Row")


@dataclass(frozen=True, kw_only=True, slots=True)
class Page(Generic[Row]):
    """Rows of one page, newest first; query strings of the next older and of the first page."""

    rows: Sequence[Row]
    older: str = ""
    newest: str = ""


def page_of(
    request: HttpRequest,
    read: Callable[[str, int], Sequence[Row]],
    *,
    key: Callable[[Row], object],
    per_page: int = PER_PAGE,
) -> Page[Row]:
    """Read one page.

    Args:
        request: tells `before`, and the filters to keep.
        read: (key to end before, limit) → rows, newest first; the key is empty for the first page.
        key: of a row.
        per_page: rows.

    Cost: one call of `read` for one row more than is shown.
    """
    before = request.GET.get("before", "")[:_LONGEST]
    rows = read(before, per_page + 1)
    query = request.GET.copy()
    query.pop("before", None)
    newest = (f"?{query.urlencode()}") if before else ""
    older = ""
    if len(rows) > per_page:
        query["before"] = str(key(rows[per_page - 1]))
        older = f"?{query.urlencode()}"
    return Page(rows=rows[:per_page], older=older, newest=newest)


def number(text: str, *, otherwise: int = HIGHEST) -> int:
    """Return a key that is a number, `otherwise` for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else otherwise

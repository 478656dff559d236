"""Orders as CSV: read in pages by key, no transaction is long, and safe in a spreadsheet."""

import csv
import io
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from asgiref.sync import sync_to_async

from orders.database import fetch

HEADINGS: Final = (
    "order_id", "reservation_id", "activity_id", "sku_id", "user_id", "quantity", "amount_cents",
    "currency", "status", "reason", "created_at", "expires_at", "paid_at", "canceled_at",
    "payment_id",
)  # fmt: skip

_PAGE_SQL: Final = """
SELECT order_id, reservation_id, activity_id, sku_id, user_id, quantity, amount_cents, currency,
    status, cancel_reason, created_at, expires_at, paid_at, canceled_at, payment_id
FROM orders_order
WHERE order_id > %s AND (%s::bigint IS NULL OR activity_id = %s::bigint)
ORDER BY order_id LIMIT %s
"""
_PAGE: Final = 1_000
# A cell that begins so is a formula to a spreadsheet.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def csv_lines(*, activity_id: int | None = None) -> Iterator[str]:
    """Yield the file in pieces of 1 000 orders, oldest first, headings at the top.

    Args:
        activity_id: one sale only, all when None.

    Cost: one short statement a page, by key; orders made meanwhile come at the end.
    """
    yield _text([HEADINGS])
    after: str | None = ""
    while after is not None:
        text, after = _page(after, activity_id)
        yield text


async def csv_lines_async(*, activity_id: int | None = None) -> AsyncIterator[str]:
    """`csv_lines` for an asynchronous response: a page at a time in the request's thread."""
    yield _text([HEADINGS])
    after: str | None = ""
    while after is not None:
        text, after = await sync_to_async(_page)(after, activity_id)
        yield text


def safe_cell(value: Any) -> str:
    """Return a value as text that no spreadsheet takes for a formula."""
    if value is None:
        return ""
    text = value.isoformat() if hasattr(value, "isoformat") else str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _page(after: str, activity_id: int | None) -> tuple[str, str | None]:
    """Return a page as text and the key to go on from, None at the end."""
    rows = fetch(_PAGE_SQL, (after, activity_id, activity_id, _PAGE))
    following = rows[-1][0] if len(rows) == _PAGE else None
    return _text([[safe_cell(value) for value in row] for row in rows]), following


def _text(rows: Any) -> str:
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue()

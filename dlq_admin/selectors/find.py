"""Search by the beginning of an id, on indexed columns only."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dlq_admin.models.message import DlqMessage
from dlq_admin.selectors.messages import MessageLine, newest_lines

LIMIT: Final = 50
_SHORTEST: Final = 8  # "evt_" and four characters: fewer would be half of the table
_BY_PREFIX: Final = {"evt_": "msg", "rsv_": "rsv", "ord_": "order"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What a search gave; `why` says why nothing could be looked for."""

    rows: Sequence[MessageLine] = ()
    more: bool = False
    why: str = ""
    reservation_id: str = ""


def parse(query: str) -> tuple[str, str]:
    """Return what is asked for: msg, rsv, order, user, ticket (or nothing), and its value."""
    text = query.strip()
    kind, colon, value = text.partition(":")
    if colon and kind.lower() in ("msg", "rsv", "order", "user", "ticket"):
        return kind.lower(), value.strip()
    if text.startswith("req_"):  # a purchase's ids share their ULID
        return "order", f"ord_{text.removeprefix('req_')}"
    for beginning, meant in _BY_PREFIX.items():
        if text.startswith(beginning):
            return meant, text
    if text.isascii() and text.isdigit():
        return "ticket", text
    return "", text


def find(query: str) -> Found:
    """Find dead messages.

    Args:
        query: `msg:`, `rsv:`, `order:` and the beginning of an id, or `user:` and a whole one.

    Cost: one or two statements on an index.
    """
    kind, value = parse(query)
    if not kind:
        return Found(why="Say what it is: msg: rsv: order: user: ticket: before the id.")
    if kind == "ticket":
        return Found(why="A ticket has a number.")
    if kind != "user" and len(value) < _SHORTEST:
        return Found(why=f"Write at least {_SHORTEST} characters of the id.")
    if kind == "msg":
        return _found(message_id__startswith=value)
    if kind == "user":
        return _found(user_id=value) if value else Found(why="Write the whole id of the buyer.")
    if kind == "order":
        return _found(order_id__startswith=value)
    return _found(reservation_id__startswith=value)


def _found(**wanted: str) -> Found:
    rows = newest_lines(DlqMessage.objects.filter(**wanted), limit=LIMIT + 1)
    return Found(
        rows=rows[:LIMIT],
        more=len(rows) > LIMIT,
        reservation_id=next((row.reservation_id for row in rows if row.reservation_id), ""),
    )

"""Inbox, outbox and quarantine row by row for the console: pages by key, newest first, no totals.

Frozen records without bodies; a row's text is the transport's, so treat it as foreign.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db import connection

from messaging.models import QuarantineRow
from messaging.topology import GROUPS

OUTBOX_STATES: Final = ("due", "sent", "given up")

# A page of the outbox; id is the key's first column, so days are read backwards and no further. A
# state is written out: with a parameter the planner could not use the index of what was given up.
_OUTBOX: Final = """
SELECT id, event_id, topic, tag, keys, lane, state, attempts, created_at, available_at, sent_at,
    replay_id, last_error
FROM messaging_outbox
WHERE id < %s{state}
ORDER BY id DESC LIMIT %s
"""
# A page of the inbox of one group, backwards through its key.
_INBOX: Final = """
SELECT consumer_group, message_id, outcome, reason, reservation_id, order_id, delivery_attempt,
    created_at
FROM messaging_inbox WHERE consumer_group = %s AND message_id < %s
ORDER BY message_id DESC LIMIT %s
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class OutboxLine:
    """A message to publish, as a list shows it."""

    id: int
    event_id: str
    topic: str
    tag: str
    keys: str
    lane: int
    state: str
    attempts: int
    created_at: datetime
    available_at: datetime
    sent_at: datetime | None
    replay_id: str
    last_error: str


@dataclass(frozen=True, kw_only=True, slots=True)
class InboxLine:
    """What a group did with a message."""

    group: str
    message_id: str
    outcome: str
    reason: str
    reservation_id: str
    order_id: str
    delivery_attempt: int
    created_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class QuarantineLine:
    """A message that a loop gave up on, without its body."""

    id: int
    group: str
    message_id: str
    source: str
    status: str
    reason: str
    error: str
    reservation_id: str | None
    occurrences: int
    first_at: datetime
    last_at: datetime
    resolution: str


def outbox_page(
    *, before: int = 2**63 - 1, limit: int = 50, state: str = ""
) -> Sequence[OutboxLine]:
    """Return outbox rows with smaller ids, the newest first.

    Args:
        before: id to end before.
        limit: at most so many.
        state: one of OUTBOX_STATES, all when empty.
    """
    wanted = f" AND state = {OUTBOX_STATES.index(state)}" if state in OUTBOX_STATES else ""
    return [
        OutboxLine(
            id=row[0],
            event_id=row[1],
            topic=row[2],
            tag=row[3],
            keys=row[4],
            lane=row[5],
            state=OUTBOX_STATES[row[6]],
            attempts=row[7],
            created_at=row[8],
            available_at=row[9],
            sent_at=row[10],
            replay_id=row[11],
            last_error=row[12],
        )
        for row in _rows(_OUTBOX.format(state=wanted), before, limit)
    ]


def inbox_page(*, group: str, before: str = "", limit: int = 50) -> Sequence[InboxLine]:
    """Return what a group did with messages of smaller ids, the newest first.

    Args:
        group: registry name.
        before: message id to end before; empty for the newest.
        limit: at most so many.
    """
    return [
        InboxLine(
            group=row[0],
            message_id=row[1],
            outcome=row[2],
            reason=row[3],
            reservation_id=row[4],
            order_id=row[5],
            delivery_attempt=row[6],
            created_at=row[7],
        )
        for row in _rows(_INBOX, group, before or "~", limit)
    ]


def quarantine_page(
    *, before: int = 2**63 - 1, limit: int = 50, status: str = "", group: str = ""
) -> Sequence[QuarantineLine]:
    """Return quarantine rows with smaller ids, the newest first; filters that are empty do not."""
    rows = QuarantineRow.objects.filter(pk__lt=before)
    if status:
        rows = rows.filter(status=status)
    if group:
        rows = rows.filter(consumer_group=group)
    return [
        QuarantineLine(
            id=row.pk,
            group=row.consumer_group,
            message_id=row.message_id,
            source=row.source,
            status=row.status,
            reason=row.reason,
            error=row.error,
            reservation_id=row.reservation_id,
            occurrences=row.occurrences,
            first_at=row.first_at,
            last_at=row.last_at,
            resolution=row.resolution,
        )
        for row in rows.defer("body", "properties").order_by("-pk")[:limit]
    ]


def known_groups() -> list[str]:
    """Return the registry names of all groups."""
    return [group.name for group in GROUPS]


def _rows(sql: str, *params: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall())

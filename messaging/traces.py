"""What messaging knows of one purchase: its outbox rows, its inbox rows, its quarantine rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.db import connection
from django.db.models import Q

from messaging.browse import OUTBOX_STATES
from messaging.models import QuarantineRow
from messaging.partitions import message_id_at
from messaging.topology import GROUPS

# A row's event id is drawn in the transaction that writes it: its index narrows the search to the
# seconds around what is known to have happened, and the keys say whose it is.
_OUTBOX: Final = """
SELECT o.event_id, o.topic, o.tag, o.lane, o.state, o.attempts, o.created_at, o.available_at,
    o.sent_at, o.last_error, o.payload
FROM unnest(%s::text[], %s::text[]) AS span(low, high)
JOIN messaging_outbox o ON o.event_id >= span.low AND o.event_id < span.high
WHERE (' ' || o.keys || ' ') LIKE %s
ORDER BY o.id
"""
_AROUND: Final = timedelta(seconds=2)

# The key's first column is the group: with both columns known each day is one probe.
_INBOX: Final = """
SELECT consumer_group, message_id, outcome, reason, delivery_attempt, created_at
FROM messaging_inbox WHERE consumer_group = ANY(%s::text[]) AND message_id = ANY(%s::text[])
ORDER BY created_at, consumer_group
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class OutboxTrace:
    """A message that was to be published."""

    event_id: str
    topic: str
    tag: str
    lane: int
    state: str
    attempts: int
    created_at: datetime
    available_at: datetime
    sent_at: datetime | None
    last_error: str
    body: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class InboxTrace:
    """What a group did with a message."""

    group: str
    message_id: str
    outcome: str
    reason: str
    delivery_attempt: int
    created_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class QuarantineTrace:
    """A message that somebody gave up on."""

    group: str
    message_id: str
    status: str
    reason: str
    occurrences: int
    first_at: datetime
    last_at: datetime
    resolved_at: datetime | None
    resolution: str


def outbox_of(*, reservation_id: str, around: Sequence[datetime]) -> list[OutboxTrace]:
    """Return a purchase's outbox rows that were written within 2 s of known instants.

    Cost: one range of the index of event ids for each instant; at the peak of a sale that is the
    rows of four seconds.
    """
    if not around:
        return []
    spans = _merged(around)
    with connection.cursor() as cursor:
        cursor.execute(
            _OUTBOX,
            [
                [message_id_at(low) for low, _ in spans],
                [message_id_at(high) for _, high in spans],
                f"% {reservation_id} %",
            ],
        )
        return [
            OutboxTrace(
                event_id=row[0],
                topic=row[1],
                tag=row[2],
                lane=row[3],
                state=OUTBOX_STATES[row[4]],
                attempts=row[5],
                created_at=row[6],
                available_at=row[7],
                sent_at=row[8],
                last_error=row[9],
                body=row[10].encode(),
            )
            for row in cursor.fetchall()
        ]


def inbox_of(message_ids: Sequence[str]) -> list[InboxTrace]:
    """Return what every group did with messages, oldest first. One statement."""
    with connection.cursor() as cursor:
        cursor.execute(_INBOX, [[group.name for group in GROUPS], sorted(set(message_ids))])
        return [
            InboxTrace(
                group=row[0],
                message_id=row[1],
                outcome=row[2],
                reason=row[3],
                delivery_attempt=row[4],
                created_at=row[5],
            )
            for row in cursor.fetchall()
        ]


def quarantine_of(*, reservation_id: str, message_ids: Sequence[str]) -> list[QuarantineTrace]:
    """Return the quarantine rows of a purchase, open and resolved. One statement."""
    found = QuarantineRow.objects.filter(
        Q(reservation_id=reservation_id) | Q(message_id__in=set(message_ids))
    )
    return [
        QuarantineTrace(
            group=row.consumer_group,
            message_id=row.message_id,
            status=row.status,
            reason=row.reason,
            occurrences=row.occurrences,
            first_at=row.first_at,
            last_at=row.last_at,
            resolved_at=row.resolved_at,
            resolution=row.resolution,
        )
        for row in found.order_by("first_at")
    ]


def _merged(instants: Sequence[datetime]) -> list[tuple[datetime, datetime]]:
    """Return spans around instants that do not overlap."""
    spans: list[tuple[datetime, datetime]] = []
    for instant in sorted(instants):
        low, high = instant - _AROUND, instant + _AROUND
        if spans and low <= spans[-1][1]:
            spans[-1] = (spans[-1][0], high)
        else:
            spans.append((low, high))
    return spans

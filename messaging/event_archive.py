"""The event archive: every event that was received, raw, append-only, a partition a day.

The broker is no archive (it forgets after three days); this is, until `messaging/retention.py` has
exported a day to a file and dropped it. Readers sort by the event's own time and version: the order
of arrival means nothing.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db import connection

from messaging.broker.base import ReceivedMessage
from messaging.models import ArchivedEvent

# Append events; one that is there already stays as it is.
_APPEND: Final = """
INSERT INTO messaging_event_archive
    (event_id, topic, tag, aggregate_id, aggregate_version, activity_id, occurred_at, keys,
     properties, body)
SELECT event_id, topic, tag, aggregate_id, aggregate_version, activity_id, occurred_at, keys,
    properties::jsonb, body
FROM unnest(%b::text[], %b::text[], %b::text[], %b::text[], %b::int[], %b::bigint[],
    %b::timestamptz[], %b::text[], %b::text[], %b::bytea[])
    AS row(event_id, topic, tag, aggregate_id, aggregate_version, activity_id, occurred_at, keys,
        properties, body)
ON CONFLICT DO NOTHING
RETURNING event_id
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class EventFacts:
    """What the archive must know of a body beside its bytes."""

    event_id: str
    aggregate_id: str
    aggregate_version: int
    activity_id: int
    occurred_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class EventRecord:
    """An archived event."""

    event_id: str
    topic: str
    tag: str
    aggregate_id: str
    aggregate_version: int
    occurred_at: datetime
    received_at: datetime
    body: bytes


def append(events: Sequence[tuple[EventFacts, ReceivedMessage]]) -> set[str]:
    """Append received events.

    Args:
        events: facts and delivery of each; doubles count once (the first).

    Returns:
        The ids that were not there yet.

    Cost:
        One statement; sorted, so that two batches with the same events do not deadlock.
    """
    unique: dict[str, tuple[EventFacts, ReceivedMessage]] = {}
    for facts, message in events:
        unique.setdefault(facts.event_id, (facts, message))
    if not unique:
        return set()
    rows = [unique[event_id] for event_id in sorted(unique)]
    with connection.cursor() as cursor:
        cursor.execute(
            _APPEND,
            [
                [facts.event_id for facts, _ in rows],
                [message.topic for _, message in rows],
                [message.tag for _, message in rows],
                [facts.aggregate_id for facts, _ in rows],
                [facts.aggregate_version for facts, _ in rows],
                [facts.activity_id for facts, _ in rows],
                [facts.occurred_at for facts, _ in rows],
                [" ".join(message.keys) for _, message in rows],
                [json.dumps(dict(message.properties)) for _, message in rows],
                [message.body for _, message in rows],
            ],
        )
        return {event_id for (event_id,) in cursor.fetchall()}


def events_of(aggregate_id: str) -> list[EventRecord]:
    """Return the events of one aggregate by their own time and version. One statement."""
    found = ArchivedEvent.objects.filter(aggregate_id=aggregate_id)
    return [_record(row) for row in found.order_by("occurred_at", "aggregate_version", "event_id")]


def _record(row: Any) -> EventRecord:
    return EventRecord(
        event_id=row.event_id,
        topic=row.topic,
        tag=row.tag,
        aggregate_id=row.aggregate_id,
        aggregate_version=row.aggregate_version,
        occurred_at=row.occurred_at,
        received_at=row.received_at,
        body=bytes(row.body),
    )

"""Dead messages of a ticket, and one with all that is known of its deaths."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db.models import QuerySet

from dlq_admin.models.message import DlqMessage, DlqOccurrence
from dlq_admin.models.replay import replays_made
from dlq_admin.states import MessageStatus

DEATHS_SHOWN: Final = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageLine:
    """A dead message as a list shows it."""

    id: int
    ticket_id: int | None
    group: str
    message_id: str
    reservation_id: str
    status: str
    resolution: str
    occurrences: int
    replays: int
    valid_until: datetime | None
    first_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Death:
    """One death of a message."""

    at: datetime
    source: str
    error_class: str
    error: str
    delivery_attempt: int
    broker_id: str
    queue: str
    trace_id: str
    build: int | None
    replay_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageView:
    """A dead message whole. `body` is for those who may see it only."""

    id: int
    ticket_id: int | None
    group: str
    message_id: str
    topic: str
    tag: str
    status: str
    resolution: str
    evidence: Mapping[str, Any]
    properties: Mapping[str, Any]
    body: bytes
    body_sha256: str
    error_class: str
    error: str
    reservation_id: str
    order_id: str
    replays: int
    valid_until: datetime | None
    first_at: datetime
    deaths: Sequence[Death]


def newest_lines(rows: QuerySet[DlqMessage], *, limit: int) -> list[MessageLine]:
    """Return the newest of the rows as a list shows them. One statement."""
    newest = rows.defer("body", "properties").annotate(made=replays_made()).order_by("-pk")[:limit]
    return [_line_of(row, replays=row.made) for row in newest]


def _line_of(row: DlqMessage, *, replays: int) -> MessageLine:
    return MessageLine(
        id=row.pk,
        ticket_id=row.ticket_id,
        group=row.consumer_group,
        message_id=row.message_id,
        reservation_id=row.reservation_id,
        status=row.status,
        resolution=row.resolution,
        occurrences=row.occurrence_count,
        replays=replays,
        valid_until=row.valid_until,
        first_at=row.first_seen_at,
    )


def message_page(*, ticket_id: int, before: int, limit: int) -> list[MessageLine]:
    """Return a ticket's messages with smaller keys, the newest first. One statement."""
    rows = DlqMessage.objects.filter(ticket_id=ticket_id, pk__lt=before)
    return newest_lines(rows, limit=limit)


def message_view(message_pk: int) -> MessageView | None:
    """Return one message; None when there is none. Two statements."""
    row = DlqMessage.objects.annotate(made=replays_made()).filter(pk=message_pk).first()
    if row is None:
        return None
    return MessageView(
        id=row.pk,
        ticket_id=row.ticket_id,
        group=row.consumer_group,
        message_id=row.message_id,
        topic=row.topic,
        tag=row.tag,
        status=row.status,
        resolution=row.resolution,
        evidence=row.evidence,
        properties=row.properties,
        body=bytes(row.body),
        body_sha256=row.body_sha256,
        error_class=row.error_class,
        error=row.error,
        reservation_id=row.reservation_id,
        order_id=row.order_id,
        replays=row.made,
        valid_until=row.valid_until,
        first_at=row.first_seen_at,
        deaths=_deaths(row.pk),
    )


def first_message(ticket_id: int) -> int | None:
    """Return the message that a ticket's tabs begin with: the oldest open one, else the newest."""
    rows = DlqMessage.objects.filter(ticket_id=ticket_id).values_list("pk", flat=True)
    oldest = rows.filter(status=MessageStatus.OPEN.value).order_by("pk").first()
    return oldest if oldest is not None else rows.order_by("-pk").first()


def _deaths(message_pk: int) -> list[Death]:
    rows = DlqOccurrence.objects.filter(message_id=message_pk).order_by("-pk")[:DEATHS_SHOWN]
    return [
        Death(
            at=row.died_at,
            source=row.source,
            error_class=row.error_class,
            error=row.error,
            delivery_attempt=row.delivery_attempt,
            broker_id=row.broker_message_id,
            queue="" if row.queue_id is None else f"{row.queue_id} @ {row.queue_offset}",
            trace_id=row.trace_id,
            build=row.build,
            replay_id=row.replay_id,
        )
        for row in rows
    ]

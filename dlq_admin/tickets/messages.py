"""Ending dead messages: their row and messaging's quarantine row in one transaction."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.db.models import F
from django.db.models.functions import Now

from dlq_admin.models.message import DlqMessage
from dlq_admin.models.replay import ReplayItem
from dlq_admin.states import ItemStatus, MessageStatus, Resolution
from messaging import quarantine

_RESOLUTION_OF: Final[dict[ItemStatus, Resolution]] = {
    ItemStatus.VERIFIED: Resolution.VERIFIED,
    ItemStatus.COMPENSATED: Resolution.COMPENSATED,
    ItemStatus.DISCARDED: Resolution.DISCARDED,
}


def resolve(
    rows: Sequence[DlqMessage], *, resolution: Resolution, evidence: Mapping[str, Any]
) -> int:
    """End messages inside the caller's transaction; returns how many were open.

    Cost: one update, and one for each consumer group among them.
    """
    ended = DlqMessage.objects.filter(
        pk__in=[row.pk for row in rows], status=MessageStatus.OPEN
    ).update(
        status=MessageStatus.CLOSED,
        resolution=resolution,
        evidence=dict(evidence),
        closed_at=Now(),
        version=F("version") + 1,
    )
    for group in sorted({row.consumer_group for row in rows}):
        quarantine.resolve(
            group=group,
            message_ids=[row.message_id for row in rows if row.consumer_group == group],
            resolution=resolution.value,
        )
    return ended


def resolve_open(ticket_id: int, *, resolution: Resolution, evidence: Mapping[str, Any]) -> int:
    """End every open message of a ticket inside the caller's transaction; returns how many."""
    return resolve(_open(ticket_id), resolution=resolution, evidence=evidence)


def resolve_replayed(ticket_id: int) -> int:
    """End the messages whose newest replay item succeeded; returns how many."""
    rows = {row.pk: row for row in _open(ticket_id)}
    newest: dict[int, ReplayItem] = {}
    for item in ReplayItem.objects.filter(message_id__in=rows).order_by("pk"):
        newest[item.message_id] = item
    ended = 0
    for pk, item in newest.items():
        resolution = _RESOLUTION_OF.get(ItemStatus(item.status))
        if resolution is not None:
            ended += resolve(
                [rows[pk]],
                resolution=resolution,
                evidence={"replay_id": item.replay_id, **item.evidence},
            )
    return ended


def open_count(ticket_id: int) -> int:
    """Return how many messages of a ticket have not ended."""
    return DlqMessage.objects.filter(ticket_id=ticket_id, status=MessageStatus.OPEN).count()


def _open(ticket_id: int) -> list[DlqMessage]:
    return list(
        DlqMessage.objects.select_for_update()
        .filter(ticket_id=ticket_id, status=MessageStatus.OPEN)
        .only("pk", "consumer_group", "message_id")
        .order_by("pk")
    )

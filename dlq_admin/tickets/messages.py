"""Ending dead messages: their row and messaging's quarantine row in one transaction.

A ticket may have any number of messages: their keys go to PostgreSQL as one array, never as a
parameter each (it takes 65 535).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from django.db import connection
from django.db.models import Exists, OuterRef, QuerySet

from dlq_admin.models.message import DlqMessage
from dlq_admin.models.replay import ReplayItem
from dlq_admin.states import ItemStatus, MessageStatus, Resolution
from messaging import quarantine

_RESOLUTION_OF: Final[dict[ItemStatus, Resolution]] = {
    ItemStatus.VERIFIED: Resolution.VERIFIED,
    ItemStatus.COMPENSATED: Resolution.COMPENSATED,
    ItemStatus.DISCARDED: Resolution.DISCARDED,
}
_SUCCEEDED: Final = sorted(status.value for status in _RESOLUTION_OF)

# End the messages among these that are still open.
_END: Final = """
UPDATE dlq_message SET status = 'CLOSED', resolution = %s, evidence = %s::jsonb,
    closed_at = statement_timestamp(), version = version + 1
WHERE id = ANY(%b::bigint[]) AND status = 'OPEN'
"""


def resolve(
    rows: Sequence[DlqMessage], *, resolution: Resolution, evidence: Mapping[str, Any]
) -> int:
    """End messages inside the caller's transaction; returns how many were open.

    Cost: one update, and one for each consumer group among them.
    """
    if not rows:
        return 0
    told = msgspec.json.encode(dict(evidence)).decode()
    with connection.cursor() as cursor:
        cursor.execute(_END, [resolution.value, told, [row.pk for row in rows]])
        ended: int = cursor.rowcount
    by_group: dict[str, list[str]] = {}
    for row in rows:
        by_group.setdefault(row.consumer_group, []).append(row.message_id)
    for group, message_ids in sorted(by_group.items()):
        quarantine.resolve(group=group, message_ids=message_ids, resolution=resolution.value)
    return ended


def resolve_replayed(ticket_id: int) -> int:
    """End the messages whose newest replay item succeeded; returns how many.

    The ticket is locked: no plan can add an item meanwhile. Messages that no item has brought to
    its end are neither read nor locked, however many they are.

    Cost: one statement, and two for each message that ends.
    """
    later = ReplayItem.objects.filter(message_id=OuterRef("message_id"), pk__gt=OuterRef("pk"))
    succeeded = (
        ReplayItem.objects.filter(
            ~Exists(later),
            status__in=_SUCCEEDED,
            message__ticket_id=ticket_id,
            message__status=MessageStatus.OPEN,
        )
        .select_related("message")
        .only("status", "replay_id", "evidence", "message__consumer_group", "message__message_id")
        .order_by("message_id")
    )
    return sum(
        resolve(
            [item.message],
            resolution=_RESOLUTION_OF[ItemStatus(item.status)],
            evidence={"replay_id": item.replay_id, **item.evidence},
        )
        for item in succeeded
    )


def open_messages(ticket_id: int) -> "QuerySet[DlqMessage]":
    """Return the messages of a ticket that no one has ended yet, oldest first."""
    return DlqMessage.objects.filter(ticket_id=ticket_id, status=MessageStatus.OPEN).order_by("pk")


def open_count(ticket_id: int) -> int:
    """Return how many messages of a ticket have not ended."""
    return open_messages(ticket_id).count()

"""Batches by key for their list and the approval queue, each with its ends counted."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.db.models import Count, F, Q, QuerySet

from dlq_admin.models.replay import Approval, ReplayBatch, ReplayItem
from dlq_admin.replay.progress import FAILED
from dlq_admin.replay.selectors import ApprovalView
from dlq_admin.states import BATCH_ACTIVE, ITEM_SUCCESS, BatchStatus

_FAILED: Final = frozenset(status.value for status in FAILED)
_GOOD: Final = frozenset(status.value for status in ITEM_SUCCESS)


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchLine:
    """A batch as a list shows it."""

    id: int
    ticket_id: int
    group: str
    disposition: str
    status: str
    items: int
    good: int
    failed: int
    reason: str
    requested_by: str
    created_at: datetime
    requested_at: datetime | None
    expires_at: datetime
    glass_due_at: datetime | None  # started behind broken glass, and not approved yet


def batch_page(
    *, before: int, limit: int, status: str = "", ticket_id: int | None = None
) -> list[BatchLine]:
    """Return batches with smaller ids, the newest first. Two statements.

    Args:
        before: id to end before.
        limit: at most so many.
        status: a batch's status, "active" for all that run or are paused, empty for all.
        ticket_id: only this ticket's.
    """
    found = ReplayBatch.objects.filter(pk__lt=before)
    if status == "active":
        found = found.filter(status__in=[one.value for one in BATCH_ACTIVE])
    elif status:
        found = found.filter(status=status)
    if ticket_id is not None:
        found = found.filter(ticket_id=ticket_id)
    return _lines(found.order_by("-pk"), limit)


def waiting_for_approval(*, limit: int = 100) -> list[BatchLine]:
    """Return what waits for somebody's yes, the most urgent first. Two statements.

    What was started behind broken glass stands before the plans.
    """
    owed = Q(glass__isnull=False, glass__approved_at__isnull=True)
    found = ReplayBatch.objects.filter(Q(status=BatchStatus.PENDING_APPROVAL.value) | owed)
    return _lines(
        found.order_by(F("glass__due_at").asc(nulls_last=True), "expires_at", "pk"), limit
    )


def approvals_of(batch_ids: Sequence[int]) -> dict[int, list[ApprovalView]]:
    """Return who said yes to each batch. One statement."""
    found: dict[int, list[ApprovalView]] = {}
    rows = Approval.objects.select_related("approver").filter(batch_id__in=list(batch_ids))
    for row in rows.order_by("pk"):
        found.setdefault(row.batch_id, []).append(
            ApprovalView(
                approver=row.approver.get_username(),
                lead=row.lead,
                comment=row.comment,
                created_at=row.created_at,
            )
        )
    return found


def _lines(found: QuerySet[ReplayBatch], limit: int) -> list[BatchLine]:
    rows = list(found.select_related("requested_by", "glass")[:limit])
    good: dict[int, int] = {}
    failed: dict[int, int] = {}
    ends = (
        ReplayItem.objects.filter(batch_id__in=[row.pk for row in rows], status__in=_GOOD | _FAILED)
        .values_list("batch_id", "status")
        .annotate(Count("pk"))
    )
    for batch_id, status, count in ends:
        counted = good if status in _GOOD else failed
        counted[batch_id] = counted.get(batch_id, 0) + count
    return [
        BatchLine(
            id=row.pk,
            ticket_id=row.ticket_id,
            group=row.consumer_group,
            disposition=row.disposition,
            status=row.status,
            items=row.items_total,
            good=good.get(row.pk, 0),
            failed=failed.get(row.pk, 0),
            reason=row.reason,
            requested_by=row.requested_by.get_username(),
            created_at=row.created_at,
            requested_at=row.requested_at,
            expires_at=row.expires_at,
            glass_due_at=_owed(row),
        )
        for row in rows
    ]


def _owed(row: ReplayBatch) -> datetime | None:
    glass = getattr(row, "glass", None)
    return glass.due_at if glass is not None and glass.approved_at is None else None

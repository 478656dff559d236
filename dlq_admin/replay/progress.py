"""Counting a batch's items: for the worker's decisions and the monitor's page."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Count, Q
from django.utils import timezone

from dlq_admin.models.replay import InvariantRun, ReplayBatch, ReplayItem
from dlq_admin.replay.limits import RECENT
from dlq_admin.states import (
    ITEM_IN_FLIGHT,
    ITEM_PROCESSED,
    ITEM_SUCCESS,
    ITEM_TERMINAL,
    ItemStatus,
)

# Ends that say that the repair does not work, as against those where nothing was tried.
FAILED = frozenset({ItemStatus.FAILED_AGAIN, ItemStatus.VERIFY_FAILED})
SKIPPED = frozenset({ItemStatus.STALE, ItemStatus.CANCELLED, ItemStatus.BLOCKED})


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """A batch in numbers."""

    total: int
    waiting: int
    in_flight: int
    processed: int
    good: int
    failed: int
    skipped: int
    by_status: Mapping[str, int]

    @property
    def ended(self) -> bool:
        """Whether nothing of it is on its way any more."""
        return self.waiting == 0 and self.in_flight == 0 and self.processed == 0


def progress(batch_id: int) -> Progress:
    """Count a batch's items by what became of them. One statement on an index."""
    counts = {
        ItemStatus(row["status"]): row["items"]
        for row in ReplayItem.objects.filter(batch_id=batch_id)
        .values("status")
        .annotate(items=Count("pk"))
    }

    def of(statuses: frozenset[ItemStatus]) -> int:
        return sum(counts.get(status, 0) for status in statuses)

    total = sum(counts.values())
    ended = of(ITEM_TERMINAL)
    in_flight, processed = of(ITEM_IN_FLIGHT), of(ITEM_PROCESSED)
    return Progress(
        total=total,
        waiting=total - ended - in_flight - processed,
        in_flight=in_flight,
        processed=processed,
        good=of(ITEM_SUCCESS),
        failed=of(FAILED),
        skipped=of(SKIPPED),
        by_status={status.value: count for status, count in counts.items()},
    )


def canary_passed(batch: ReplayBatch, counted: Progress) -> bool:
    """Tell whether as many items as the canary has were proven good."""
    return counted.good >= min(batch.canary_size, batch.items_total)


def recent_ends(batch: ReplayBatch) -> list[bool]:
    """Return the newest ends since the batch was last resumed: True for a failure."""
    ends = ReplayItem.objects.filter(batch=batch, ended_at__isnull=False).filter(
        Q(status__in=[status.value for status in FAILED | ITEM_SUCCESS])
    )
    if batch.resumed_at:
        ends = ends.filter(ended_at__gt=batch.resumed_at)
    return [
        status in FAILED
        for status in ends.order_by("-ended_at").values_list("status", flat=True)[:RECENT]
    ]


def invariant_failed(batch: ReplayBatch) -> bool:
    """Tell whether an invariant did not hold since the batch was last resumed."""
    failed = InvariantRun.objects.filter(batch=batch, passed=False)
    if batch.resumed_at:
        failed = failed.filter(created_at__gt=batch.resumed_at)
    return failed.exists()


def sent_within(batch: ReplayBatch, *, seconds: float) -> int:
    """Count what was written for the sender in the last seconds."""
    since = timezone.now() - timedelta(seconds=seconds)
    return ReplayItem.objects.filter(batch=batch, sent_at__gt=since).count()

"""The life of batches, as the worker drives it: expire, start, canary, throttle, pause, complete.

Each step is a transaction that locks the batch's row, so that two workers, or a worker and a
person, never decide at the same time.
"""

from typing import Final

import structlog
from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models.functions import Now
from django.utils import timezone

import faultpoint
from dlq_admin import tickets
from dlq_admin.audit.record import SYSTEM
from dlq_admin.errors import DlqAdminError
from dlq_admin.models.replay import ReplayBatch
from dlq_admin.replay.limits import Pressure, rate, reason_to_pause
from dlq_admin.replay.moves import move_all, move_batch
from dlq_admin.replay.progress import canary_passed, invariant_failed, progress, recent_ends
from dlq_admin.replay.prove import check_batch
from dlq_admin.states import (
    BATCH_ACTIVE,
    BATCH_ENDED,
    BATCH_SENDS,
    BatchStatus,
    ItemStatus,
)

log = structlog.get_logger(__name__)

_WAITING: Final = [
    BatchStatus.PLANNED.value, BatchStatus.PENDING_APPROVAL.value, BatchStatus.APPROVED.value,
]  # fmt: skip
_UNSENT: Final = [ItemStatus.PLANNED, ItemStatus.PENDING_APPROVAL, ItemStatus.APPROVED]


def expire_due() -> int:
    """End plans whose time has passed before anything of them was sent; returns how many."""
    due = list(
        ReplayBatch.objects.filter(status__in=_WAITING, expires_at__lte=timezone.now())
        .order_by("pk")
        .values_list("pk", flat=True)[:100]
    )
    ended = 0
    for pk in due:
        with transaction.atomic(durable=True):
            batch = _lock(pk)
            if batch is None or batch.status not in _WAITING:
                continue
            move_batch(batch, to=BatchStatus.EXPIRED, actor=SYSTEM, reason="its time has passed")
            move_all(batch, before=_UNSENT, to=ItemStatus.EXPIRED)
            ended += 1
    return ended


def start_approved() -> int:
    """Start approved batches, oldest first, one running for each group; returns how many."""
    started = 0
    for pk in ReplayBatch.objects.filter(status=BatchStatus.APPROVED).order_by(
        "approved_at"
    ).values_list("pk", flat=True)[:100]:  # fmt: skip
        try:
            with transaction.atomic(durable=True):
                batch = _lock(pk)
                if batch is None or batch.status != BatchStatus.APPROVED or _group_busy(batch):
                    continue
                move_batch(batch, to=BatchStatus.CANARY, actor=SYSTEM, started_at=Now())
                tickets.items_started(ticket_id=batch.ticket_id)
                started += 1
        except IntegrityError:  # another worker started one of the group: this one waits
            log.info("batch_waits", batch=pk)
        except DlqAdminError as error:  # its ticket is not ready: it waits until its time passes
            log.info("batch_waits", batch=pk, reason=str(error))
    return started


def advance(pk: int, pressure: Pressure) -> ReplayBatch | None:
    """Decide what a running batch does next; returns it, None when it is locked or has ended.

    Args:
        pk: an active batch.
        pressure: what the system bears now.
    """
    with transaction.atomic(durable=True):
        batch = _lock(pk)
        if batch is None or batch.status not in BATCH_ACTIVE:
            return None
        governed = round(batch.rate_cap * pressure.share)
        if batch.governor_rate != governed:
            ReplayBatch.objects.filter(pk=pk).update(governor_rate=governed)
        if batch.status == BatchStatus.PAUSED:
            return batch
        counted = progress(pk)
        if not counted.ended:
            why = _why_pause(batch, pressure)
            if why:
                move_batch(batch, to=BatchStatus.PAUSED, actor=SYSTEM, reason=why)
                return batch
            if batch.status == BatchStatus.CANARY and canary_passed(batch, counted):
                move_batch(
                    batch, to=BatchStatus.RUNNING, actor=SYSTEM, reason="the canary is verified"
                )
        if batch.status in (BatchStatus.RUNNING, BatchStatus.THROTTLED):
            _throttle(batch, pressure)
        faultpoint.hit("replay.before_advance")
        return batch


def complete(pk: int) -> bool:
    """Close a batch whose items have all ended: a last look at invariants, and its ticket is told.

    Returns:
        Whether it was closed now. A silent gate, or anything still in flight, postpones it; so
        does a pause, which a person ends: by going on, or by an abort.
    """
    batch = ReplayBatch.objects.filter(pk=pk).first()
    if batch is None or not _may_close(batch):
        return False
    result = check_batch(batch)
    if result is None:
        return False
    try:
        return _close(pk, passed=result.passed)
    except DlqAdminError as error:  # its ticket moved meanwhile: the next round tries again
        log.warning("batch_not_closed", batch=pk, reason=str(error))
        return False


def _close(pk: int, *, passed: bool) -> bool:
    with transaction.atomic(durable=True):
        locked = _lock(pk)
        if locked is None or not _may_close(locked):
            return False
        if locked.status not in BATCH_ENDED:
            good = progress(pk).good == locked.items_total and passed
            to = BatchStatus.COMPLETED if good else BatchStatus.COMPLETED_WITH_FAILURES
            move_batch(locked, to=to, actor=SYSTEM)
        ReplayBatch.objects.filter(pk=pk).update(closed_at=Now())
        tickets.items_finished(ticket_id=locked.ticket_id)
        faultpoint.hit("replay.before_complete")
    return True


def _may_close(batch: ReplayBatch) -> bool:
    waits = batch.started_at is None or batch.status == BatchStatus.PAUSED
    return not waits and batch.closed_at is None and progress(batch.pk).ended


def to_close() -> list[int]:
    """Return started batches that nobody has closed."""
    return list(
        ReplayBatch.objects.filter(started_at__isnull=False, closed_at__isnull=True)
        .order_by("pk")
        .values_list("pk", flat=True)[:100]
    )


def sending_rate(batch: ReplayBatch, pressure: Pressure) -> float:
    """Return messages a second that a batch may send now; 0 when it does not send."""
    if batch.status not in BATCH_SENDS:
        return 0.0
    return rate(cap=batch.rate_cap, live=batch.live_rate, pressure=pressure)


def _why_pause(batch: ReplayBatch, pressure: Pressure) -> str:
    recent = recent_ends(batch)
    if batch.status == BatchStatus.CANARY and any(recent):
        return "CANARY_FAILED"
    return reason_to_pause(
        recent=recent,
        invariant_failed=invariant_failed(batch),
        pressure=pressure,
        max_tx_p95_s=settings.SECKILL_REPLAY_MAX_TX_P95_S,
        max_lag_s=settings.SECKILL_REPLAY_MAX_LAG_S,
    )


def _throttle(batch: ReplayBatch, pressure: Pressure) -> None:
    limited = batch.rate_cap * pressure.share < min(batch.rate_cap, batch.live_rate)
    if limited and batch.status == BatchStatus.RUNNING:
        move_batch(batch, to=BatchStatus.THROTTLED, actor=SYSTEM, reason=pressure.reason)
    elif not limited and batch.status == BatchStatus.THROTTLED:
        move_batch(batch, to=BatchStatus.RUNNING, actor=SYSTEM)


def _group_busy(batch: ReplayBatch) -> bool:
    return ReplayBatch.objects.filter(
        consumer_group=batch.consumer_group, status__in=[status.value for status in BATCH_ACTIVE]
    ).exists()


def _lock(pk: int) -> ReplayBatch | None:
    return ReplayBatch.objects.select_for_update(skip_locked=True).filter(pk=pk).first()

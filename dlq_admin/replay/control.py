"""What people may do to a batch while it runs. The worker obeys within a second."""

from typing import TYPE_CHECKING

from django.db import transaction
from django.utils import timezone

from dlq_admin import access, permissions
from dlq_admin.audit import record
from dlq_admin.models.replay import ReplayBatch
from dlq_admin.replay.moves import lock_batch, move_all, move_batch
from dlq_admin.replay.progress import canary_passed, progress
from dlq_admin.replay.refusals import PlanRefused, StaleState
from dlq_admin.states import BATCH_ACTIVE, BatchStatus, ItemStatus

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def pause(*, batch_id: int, user: "User", reason: str) -> None:
    """Send nothing more until somebody resumes; what is in flight is settled and proven.

    Raises:
        PermissionDenied: the user may not (`dlq_admin.pause_replay`).
        PlanRefused: no reason was given.
        StaleState: it does not run.
    """
    access.require(user, permissions.PAUSE_REPLAY)
    reason = _reason(reason)
    with transaction.atomic(durable=True):
        move_batch(lock_batch(batch_id), to=BatchStatus.PAUSED, actor=user, reason=reason)


def resume(*, batch_id: int, user: "User", reason: str) -> None:
    """Go on; failures before this do not pause it again.

    Raises:
        PermissionDenied: the user may not (`dlq_admin.resume_replay`).
        PlanRefused: no reason was given.
        StaleState: it is not paused.
    """
    access.require(user, permissions.RESUME_REPLAY)
    reason = _reason(reason)
    with transaction.atomic(durable=True):
        batch = lock_batch(batch_id)
        if batch.status != BatchStatus.PAUSED:
            raise StaleState(f"batch {batch_id} is {batch.status}")
        passed = canary_passed(batch, progress(batch_id))
        to = BatchStatus.RUNNING if passed else BatchStatus.CANARY
        move_batch(batch, to=to, actor=user, reason=reason, resumed_at=timezone.now())


def abort(*, batch_id: int, user: "User", reason: str) -> None:
    """End a batch: what was not sent is cancelled, what was is settled and proven.

    Raises:
        PermissionDenied: the user may not (`dlq_admin.abort_replay`).
        PlanRefused: no reason was given.
        StaleState: it has ended.
    """
    access.require(user, permissions.ABORT_REPLAY)
    reason = _reason(reason)
    with transaction.atomic(durable=True):
        batch = lock_batch(batch_id)
        move_batch(batch, to=BatchStatus.ABORTED, actor=user, reason=reason)
        move_all(
            batch,
            before=[
                ItemStatus.DRAFT,
                ItemStatus.PLANNED,
                ItemStatus.PENDING_APPROVAL,
                ItemStatus.APPROVED,
                ItemStatus.CLAIMED,
            ],
            to=ItemStatus.CANCELLED,
        )


def set_rate(*, batch_id: int, user: "User", rate: int) -> None:
    """Change the live rate, 0 to the approved cap, in messages a second.

    Raises:
        PermissionDenied: the user may not (`dlq_admin.pause_replay`).
        PlanRefused: above what was approved.
        StaleState: it does not run.
    """
    access.require(user, permissions.PAUSE_REPLAY)
    with transaction.atomic(durable=True):
        batch = lock_batch(batch_id)
        if batch.status not in BATCH_ACTIVE:
            raise StaleState(f"batch {batch_id} is {batch.status}")
        if not 0 <= rate <= batch.rate_cap:
            raise PlanRefused(f"0 to {batch.rate_cap} were approved")
        ReplayBatch.objects.filter(pk=batch_id).update(live_rate=rate)
        record(
            ticket_id=batch.ticket_id,
            kind="BATCH_RATE_SET",
            actor=user,
            detail={"batch": batch_id, "from": batch.live_rate, "to": rate},
        )


def _reason(text: str) -> str:
    if not text.strip():
        raise PlanRefused("a reason is needed")
    return text.strip()

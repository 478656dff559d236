"""Request, approval, refusal. What is checked here is enforced by the database once more."""

from typing import TYPE_CHECKING

from django.db import IntegrityError, transaction
from django.utils import timezone

from dlq_admin import access, permissions
from dlq_admin.replay import consent, glass
from dlq_admin.replay.moves import lock_batch, move_all, move_batch
from dlq_admin.replay.refusals import ApprovalRefused, StaleState
from dlq_admin.states import BatchStatus, ItemStatus
from orders.errors import TicketRefused

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def request_approval(*, batch_id: int, user: "User") -> None:
    """Ask for approval of a plan. From here on it cannot change.

    Args:
        batch_id: a PLANNED batch.
        user: needs `dlq_admin.request_replay`, and is the one who planned it.

    Raises:
        PermissionDenied: the user may not.
        ApprovalRefused: it is another's plan.
        StaleState: it is not PLANNED any more, or expired.
    """
    access.require(user, permissions.REQUEST_REPLAY)
    with transaction.atomic(durable=True):
        batch = lock_batch(batch_id)
        if batch.requested_by_id != user.pk:
            raise ApprovalRefused("whoever planned it asks for its approval")
        consent.require_not_expired(batch)
        move_all(batch, before=[ItemStatus.PLANNED], to=ItemStatus.PENDING_APPROVAL)
        move_batch(batch, to=BatchStatus.PENDING_APPROVAL, actor=user, requested_at=timezone.now())


def approve(
    *, batch_id: int, plan_hash: str, password: str, user: "User", comment: str = ""
) -> BatchStatus:
    """Say yes to exactly this plan, before it starts, or afterwards when the glass was broken.

    Args:
        batch_id: a batch that waits for approval, or was started behind broken glass.
        plan_hash: of the plan that the approver has seen.
        password: the approver's own, entered now.
        user: needs `dlq_admin.approve_replay`; neither requester nor editor, nor who broke the
            glass.
        comment: for the audit.

    Returns:
        APPROVED, or PENDING_APPROVAL while a second person is missing; after broken glass what
        the batch is.

    Raises:
        PermissionDenied: the user may not.
        ApprovalRefused: own plan, wrong password or too many of them, another plan, or an
            extension that the gate does not allow.
        StaleState: it does not wait for approval (any more).

    Cost: one short transaction; with extensions two reads of Redis for each before it.
    """
    access.require(user, permissions.APPROVE_REPLAY)
    consent.check_password(batch_id=batch_id, user=user, password=password)
    consent.require_extensions(batch_id)
    try:
        with transaction.atomic(durable=True):
            batch = lock_batch(batch_id)
            if batch.plan_hash != plan_hash:
                raise ApprovalRefused("this is not the plan that you have seen")
            broken = glass.open_glass(batch_id)
            if broken is not None:
                return glass.approve_afterwards(batch, broken, user=user, comment=comment.strip())
            if batch.status != BatchStatus.PENDING_APPROVAL:
                raise StaleState(f"batch {batch_id} is {batch.status}")
            consent.require_not_expired(batch)
            lead = consent.is_lead(batch, user)
            consent.give(batch, user=user, lead=lead, comment=comment.strip())
            if consent.missing(batch_id):
                return BatchStatus.PENDING_APPROVAL
            consent.let_go(batch, user=user)
            return BatchStatus.APPROVED
    except IntegrityError as error:
        raise ApprovalRefused("this approval was given already, or is not yours to give") from error
    except TicketRefused as error:
        raise ApprovalRefused(str(error)) from error


def reject(*, batch_id: int, user: "User", reason: str) -> None:
    """Say no; its messages may be planned again.

    Raises:
        PermissionDenied: the user may not.
        ApprovalRefused: no reason was given.
        StaleState: it does not wait for approval (any more).
    """
    access.require(user, permissions.APPROVE_REPLAY)
    if not reason.strip():
        raise ApprovalRefused("a reason is needed")
    with transaction.atomic(durable=True):
        batch = lock_batch(batch_id)
        move_batch(batch, to=BatchStatus.REJECTED, actor=user, reason=reason.strip())
        move_all(batch, before=[ItemStatus.PENDING_APPROVAL], to=ItemStatus.REJECTED)

"""Request, approval, refusal. What is checked here is enforced by the database once more."""

from datetime import datetime
from typing import TYPE_CHECKING

from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from dlq_admin import access, permissions
from dlq_admin.audit import record
from dlq_admin.models.replay import Approval, ReplayBatch, ReplayItem
from dlq_admin.replay.moves import lock_batch, move_all, move_batch
from dlq_admin.replay.refusals import ApprovalRefused, StaleState
from dlq_admin.states import BatchStatus, Disposition, ItemStatus
from inventory.errors import GateUnavailable
from orders.errors import TicketRefused
from orders.extension import require_at_gate, write_extension

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
        _not_expired(batch)
        move_all(batch, before=[ItemStatus.PLANNED], to=ItemStatus.PENDING_APPROVAL)
        move_batch(batch, to=BatchStatus.PENDING_APPROVAL, actor=user, requested_at=timezone.now())


def approve(
    *, batch_id: int, plan_hash: str, password: str, user: "User", comment: str = ""
) -> BatchStatus:
    """Say yes to exactly this plan.

    Args:
        batch_id: a batch that waits for approval.
        plan_hash: of the plan that the approver has seen.
        password: the approver's own, entered now.
        user: needs `dlq_admin.approve_replay`; neither requester nor editor.
        comment: for the audit.

    Returns:
        APPROVED, or PENDING_APPROVAL while a second person is missing.

    Raises:
        PermissionDenied: the user may not.
        ApprovalRefused: own plan, wrong password, another plan, or an extension that the gate
            does not allow.
        StaleState: it does not wait for approval (any more).

    Cost: one short transaction; with extensions two reads of Redis for each before it.
    """
    access.require(user, permissions.APPROVE_REPLAY)
    if not user.check_password(password):
        record(
            ticket_id=None,
            kind="APPROVAL_PASSWORD_WRONG",
            actor=user,
            detail={"batch": batch_id},
        )
        raise ApprovalRefused("the password is wrong")
    _require_extensions(batch_id)
    try:
        with transaction.atomic(durable=True):
            batch = lock_batch(batch_id)
            if batch.status != BatchStatus.PENDING_APPROVAL:
                raise StaleState(f"batch {batch_id} is {batch.status}")
            if user.pk in (batch.requested_by_id, batch.edited_by_id):
                raise ApprovalRefused("another person must approve")
            if batch.plan_hash != plan_hash:
                raise ApprovalRefused("this is not the plan that you have seen")
            if batch.disposition == Disposition.DISCARD:
                access.require(user, permissions.APPROVE_DISCARD)
            _not_expired(batch)
            lead = access.has(user, permissions.APPROVE_SECOND_LEVEL)
            Approval.objects.create(
                batch=batch,
                requested_by_id=batch.requested_by_id,
                edited_by_id=batch.edited_by_id,
                plan_hash=plan_hash,
                approver=user,
                lead=lead,
                comment=comment.strip(),
            )
            record(
                ticket_id=batch.ticket_id,
                kind="REPLAY_APPROVED_BY",
                actor=user,
                detail={"batch": batch.pk, "plan_hash": plan_hash, "lead": lead,
                        "comment": comment.strip()},
            )  # fmt: skip
            if missing(batch):
                return BatchStatus.PENDING_APPROVAL
            now = timezone.now()
            move_batch(batch, to=BatchStatus.APPROVED, actor=user, approved_at=now)
            move_all(batch, before=[ItemStatus.PENDING_APPROVAL], to=ItemStatus.APPROVED)
            _write_extensions(batch, user, now)
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


def needed(batch: ReplayBatch) -> tuple[int, bool]:
    """Return how many people must approve, and whether one must be an incident lead."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT people, lead FROM dlq_admin_approvals_needed(%s, %s)",
            [batch.pk, batch.extension_s],
        )
        people, lead = cursor.fetchone()
    return people, lead


def missing(batch: ReplayBatch) -> str:
    """Return what an approval still lacks, in words; empty when it is complete."""
    people, lead = needed(batch)
    given = list(Approval.objects.filter(batch=batch, plan_hash=batch.plan_hash))
    if len(given) < people:
        return f"{len(given)} of {people} approvals"
    if lead and not any(one.lead for one in given):
        return "an incident lead's approval"
    return ""


def _require_extensions(batch_id: int) -> None:
    """Ask the gate before the transaction: it must name each reservation as its buyer's."""
    wanting = ReplayItem.objects.filter(
        batch_id=batch_id, batch__status=BatchStatus.PENDING_APPROVAL, needs_extension=True
    ).select_related("message")
    try:
        for item in wanting:
            require_at_gate(item.message.reservation_id or "")
    except TicketRefused as error:
        raise ApprovalRefused(str(error)) from error
    except GateUnavailable as error:
        raise ApprovalRefused("the gate does not answer: no extension can be written") from error


def _write_extensions(batch: ReplayBatch, user: "User", now: datetime) -> None:
    """Write the extension rows of the approval, in its transaction."""
    wanting = ReplayItem.objects.filter(batch=batch, needs_extension=True).select_related("message")
    for item in wanting:
        until = write_extension(
            reservation_id=item.message.reservation_id or "",
            seconds=batch.extension_s,
            reason=f"replay batch {batch.pk}: {batch.reason}",
            granted_by=user.get_username(),
            now=now,
        )
        record(
            ticket_id=batch.ticket_id,
            kind="EXTENSION_GRANTED",
            actor=user,
            detail={"reservation_id": item.message.reservation_id, "until": until.isoformat(),
                    "batch": batch.pk},
        )  # fmt: skip


def _not_expired(batch: ReplayBatch) -> None:
    if batch.expires_at <= timezone.now():
        raise StaleState(f"the plan of batch {batch.pk} has expired: plan it again")

"""Break-glass: an incident lead starts a plan before its approval, and is approved afterwards.

The rule of two people is not lifted, only late: the same people as before must say yes, none of
them the one who broke the glass, within an hour. Until they did, the ticket cannot end. After the
hour the breach stands in the audit record and an incident lead must be among them. A discard
cannot be taken back, and nothing waits for it: it is never done like this.
"""

from datetime import datetime
from typing import TYPE_CHECKING

import structlog
from django.db import IntegrityError, transaction
from django.utils import timezone

from dlq_admin import access, permissions
from dlq_admin.audit import record
from dlq_admin.models.replay import BreakGlass, ReplayBatch
from dlq_admin.replay import consent
from dlq_admin.replay.moves import lock_batch
from dlq_admin.replay.refusals import ApprovalRefused, StaleState
from dlq_admin.states import BatchStatus, Disposition, SlaKind
from dlq_admin.tickets import sla
from dlq_admin.tickets.moves import lock
from dlq_admin.tickets.notices import announce_glass
from orders.errors import TicketRefused

if TYPE_CHECKING:
    from django.contrib.auth.models import User

log = structlog.get_logger(__name__)


def break_glass(
    *, batch_id: int, plan_hash: str, password: str, reason: str, user: "User"
) -> datetime:
    """Start a plan that waits for approval, at once; on-call and the incident leads are told.

    Args:
        batch_id: a batch that waits for approval.
        plan_hash: of the plan that the user has seen.
        password: the user's own, entered now.
        reason: why it cannot wait, not empty.
        user: needs `dlq_admin.break_glass`, and what an incident lead needs for this plan. May
            have planned it: whoever approves afterwards is another person.

    Returns:
        Until when it must be approved.

    Raises:
        PermissionDenied: the user may not.
        ApprovalRefused: no reason, wrong password or too many of them, another plan, a discard, or
            an extension that the gate does not allow.
        StaleState: it does not wait for approval (any more), or has expired.

    Cost: one short transaction; with extensions two reads of Redis for each before it.
    """
    access.require(user, permissions.BREAK_GLASS)
    reason = reason.strip()
    if not reason:
        raise ApprovalRefused("a reason is needed: others read it within the hour")
    consent.check_password(batch_id=batch_id, user=user, password=password)
    consent.require_extensions(batch_id)
    try:
        with transaction.atomic(durable=True):
            batch = lock_batch(batch_id)
            _breakable(batch, plan_hash)
            for permission in sorted(consent.lead_permissions(batch)):
                access.require(user, permission)
            lacks = consent.missing(batch_id)
            glass = BreakGlass.objects.create(
                batch=batch, user=user, plan_hash=plan_hash, reason=reason
            )
            glass.refresh_from_db()
            consent.let_go(batch, user=user)
            record(
                ticket_id=batch.ticket_id,
                kind="GLASS_BROKEN",
                actor=user,
                detail={"batch": batch.pk, "plan_hash": plan_hash, "reason": reason,
                        "has": lacks, "due_at": glass.due_at.isoformat()},
            )  # fmt: skip
            sla.start(lock(batch.ticket_id), SlaKind.GLASS, at=glass.broken_at)
    except IntegrityError as error:
        raise ApprovalRefused("its glass cannot be broken (any more)") from error
    except TicketRefused as error:
        raise ApprovalRefused(str(error)) from error
    log.error(
        "glass_broken",
        alert="BREAK_GLASS",
        batch=batch_id,
        ticket_id=batch.ticket_id,
        user=user.get_username(),
    )
    announce_glass(batch_id)
    due_at: datetime = glass.due_at
    return due_at


def open_glass(batch_id: int) -> BreakGlass | None:
    """Return the broken glass of a batch that still lacks approvals; None when there is none."""
    return BreakGlass.objects.filter(batch_id=batch_id, approved_at__isnull=True).first()


def approve_afterwards(
    batch: ReplayBatch, glass: BreakGlass, *, user: "User", comment: str
) -> BatchStatus:
    """Say yes to what was started already, inside the caller's transaction.

    Raises:
        ApprovalRefused: the user broke the glass, or the hour is over and he is no incident lead.
    """
    if user.pk == glass.user_id:
        raise ApprovalRefused("you broke the glass: another person must approve")
    lead = consent.is_lead(batch, user)
    late = glass.due_at <= timezone.now()
    if late and not lead:
        raise ApprovalRefused("its hour has passed: an incident lead must approve")
    consent.give(batch, user=user, lead=lead, comment=comment)
    if not consent.missing(batch.pk):
        BreakGlass.objects.filter(pk=glass.pk).update(approved_at=timezone.now())
        record(
            ticket_id=batch.ticket_id,
            kind="GLASS_APPROVED",
            actor=user,
            detail={"batch": batch.pk, "plan_hash": batch.plan_hash, "late": late},
        )
        owed = BreakGlass.objects.filter(batch__ticket_id=batch.ticket_id, approved_at__isnull=True)
        if not owed.exists():
            sla.stop(batch.ticket_id, SlaKind.GLASS)
    return BatchStatus(batch.status)


def _breakable(batch: ReplayBatch, plan_hash: str) -> None:
    if batch.status != BatchStatus.PENDING_APPROVAL:
        raise StaleState(f"batch {batch.pk} is {batch.status}")
    if batch.plan_hash != plan_hash:
        raise ApprovalRefused("this is not the plan that you have seen")
    if batch.disposition == Disposition.DISCARD:
        raise ApprovalRefused("a discard is for good, and can wait for a second person")
    consent.require_not_expired(batch)

"""Reads of plans, batches and approvals for pages: frozen records, constant query counts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from django.utils import timezone

from dlq_admin import access, permissions
from dlq_admin.models.replay import Approval, BreakGlass, InvariantRun, ReplayBatch, ReplayItem
from dlq_admin.replay.consent import is_lead, missing
from dlq_admin.replay.glass import open_glass
from dlq_admin.replay.progress import Progress, progress
from dlq_admin.states import BatchStatus, Disposition, ItemStatus

if TYPE_CHECKING:
    from django.contrib.auth.models import User

FRESH: Final = timedelta(minutes=10)


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchView:
    """A batch as pages show it. Names are user names; `missing` is what approval still lacks."""

    batch_id: int
    ticket_id: int
    group: str
    disposition: Disposition
    status: BatchStatus
    status_reason: str
    reason: str
    selection: Mapping[str, Any]
    items_total: int
    plan_hash: str
    rate_cap: int
    live_rate: int
    governor_rate: int | None
    canary_size: int
    extension_s: int
    requested_by: str
    edited: bool
    created_at: datetime
    expires_at: datetime
    approved_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemView:
    """An item as pages show it; `edit_diff` is [{path, before, after}, …] or None."""

    item_id: int
    position: int
    message_pk: int
    message_id: str
    replay_id: str
    status: ItemStatus
    status_reason: str
    verdict: str
    verdict_reason: str
    needs_extension: bool
    replay_count: int
    send_tries: int
    edit_diff: Sequence[Mapping[str, Any]] | None
    changed_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalView:
    """An approval that was given."""

    approver: str
    lead: bool
    comment: str
    created_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class GlassView:
    """A plan that was started before its approval; `approved_at` is None while that is owed."""

    batch_id: int
    user: str
    reason: str
    broken_at: datetime
    due_at: datetime
    approved_at: datetime | None

    @property
    def late(self) -> bool:
        """Whether the approval came, or comes, after its hour."""
        return (self.approved_at or timezone.now()) > self.due_at


@dataclass(frozen=True, kw_only=True, slots=True)
class InvariantView:
    """A look at invariants."""

    passed: bool
    checked: int
    breaches: Sequence[Mapping[str, str]]
    batch_id: int | None
    created_at: datetime
    fresh: bool


def batch(batch_id: int) -> BatchView | None:
    """Return a batch; None when there is none. One statement."""
    row = ReplayBatch.objects.select_related("requested_by").filter(pk=batch_id).first()
    return _batch(row) if row else None


def items(
    batch_id: int, *, after_position: int = -1, limit: int = 100, status: str = ""
) -> list[ItemView]:
    """Return items after a position, in order (keyset paging). One statement."""
    rows = ReplayItem.objects.select_related("message").filter(
        batch_id=batch_id, position__gt=after_position
    )
    if status:
        rows = rows.filter(status=status)
    return [_item(row) for row in rows.order_by("position").defer("body", "message__body")[:limit]]


def approvals(batch_id: int) -> list[ApprovalView]:
    """Return the approvals of a batch in the order they were given. One statement."""
    return [
        ApprovalView(
            approver=row.approver.get_username(),
            lead=row.lead,
            comment=row.comment,
            created_at=row.created_at,
        )
        for row in Approval.objects.select_related("approver")
        .filter(batch_id=batch_id)
        .order_by("pk")
    ]


def why_not_approve(*, batch_id: int, user: "User") -> str:
    """Return why this user's approve button is disabled; empty when it is not. Four statements."""
    row = ReplayBatch.objects.filter(pk=batch_id).first()
    glass = open_glass(batch_id)
    if row is None or (glass is None and row.status != BatchStatus.PENDING_APPROVAL):
        return "it does not wait for approval"
    if not access.has(user, permissions.APPROVE_REPLAY):
        return "you may not approve"
    if user.pk in (row.requested_by_id, row.edited_by_id):
        return "you planned it: another person must approve"
    if glass is not None:
        if user.pk == glass.user_id:
            return "you broke the glass: another person must approve"
        if glass.due_at <= timezone.now() and not is_lead(row, user):
            return "its hour has passed: an incident lead must approve"
    elif row.expires_at <= timezone.now():
        return "its time has passed"
    if Approval.objects.filter(batch=row, approver=user).exists():
        return f"you have approved; it has {missing(row.pk)}"
    return ""


def why_not_break_glass(*, batch_id: int, user: "User") -> str:
    """Return why this user's break-glass button is disabled; empty when it is not."""
    row = ReplayBatch.objects.filter(pk=batch_id).first()
    if row is None or row.status != BatchStatus.PENDING_APPROVAL:
        return "it does not wait for approval"
    if row.disposition == Disposition.DISCARD:
        return "a discard is for good, and can wait for a second person"
    if row.expires_at <= timezone.now():
        return "its time has passed"
    if access.has(user, permissions.BREAK_GLASS) and not is_lead(row, user):
        return "this plan needs what only an incident lead may"
    return ""


def glass_of(*, batch_id: int | None = None, ticket_id: int | None = None) -> list[GlassView]:
    """Return the broken glass of a batch or of a ticket's batches. One statement."""
    scope = {"batch_id": batch_id} if batch_id else {"batch__ticket_id": ticket_id}
    rows = BreakGlass.objects.select_related("user").filter(**scope)
    return [
        GlassView(
            batch_id=row.batch_id,
            user=row.user.get_username(),
            reason=row.reason,
            broken_at=row.broken_at,
            due_at=row.due_at,
            approved_at=row.approved_at,
        )
        for row in rows.order_by("pk")
    ]


def progress_of(batch_id: int) -> Progress:
    """Return a batch in numbers. One statement."""
    return progress(batch_id)


def invariant_runs(ticket_id: int, *, limit: int = 50) -> list[InvariantView]:
    """Return the newest looks at invariants of a ticket. One statement."""
    now = timezone.now()
    return [
        InvariantView(
            passed=row.passed,
            checked=row.checked,
            breaches=row.detail.get("breaches", []),
            batch_id=row.batch_id,
            created_at=row.created_at,
            fresh=now - row.created_at < FRESH,
        )
        for row in InvariantRun.objects.filter(ticket_id=ticket_id).order_by("-pk")[:limit]
    ]


def _batch(row: ReplayBatch) -> BatchView:
    return BatchView(
        batch_id=row.pk,
        ticket_id=row.ticket_id,
        group=row.consumer_group,
        disposition=Disposition(row.disposition),
        status=BatchStatus(row.status),
        status_reason=row.status_reason,
        reason=row.reason,
        selection=row.selection,
        items_total=row.items_total,
        plan_hash=row.plan_hash,
        rate_cap=row.rate_cap,
        live_rate=row.live_rate,
        governor_rate=row.governor_rate,
        canary_size=row.canary_size,
        extension_s=row.extension_s,
        requested_by=row.requested_by.get_username(),
        edited=row.disposition == Disposition.REPLAY_EDITED,
        created_at=row.created_at,
        expires_at=row.expires_at,
        approved_at=row.approved_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
    )


def _item(row: ReplayItem) -> ItemView:
    return ItemView(
        item_id=row.pk,
        position=row.position,
        message_pk=row.message_id,
        message_id=row.message.message_id,
        replay_id=row.replay_id,
        status=ItemStatus(row.status),
        status_reason=row.status_reason,
        verdict=row.verdict,
        verdict_reason=row.verdict_reason,
        needs_extension=row.needs_extension,
        replay_count=row.replay_count,
        send_tries=row.send_tries,
        edit_diff=row.edit_diff,
        changed_at=row.changed_at,
    )

"""What every yes to a plan has in common: password, count, extension rows, and the start."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import structlog
from django.contrib.auth import get_user_model
from django.db import connection, transaction
from django.db.models import Count, Q
from django.utils import timezone

from dlq_admin import access, permissions
from dlq_admin.audit import record
from dlq_admin.models.audit import AuditEvent
from dlq_admin.models.replay import Approval, ReplayBatch, ReplayItem
from dlq_admin.replay.moves import move_all, move_batch
from dlq_admin.replay.refusals import ApprovalRefused, StaleState
from dlq_admin.states import BatchStatus, Disposition, ItemStatus
from dlq_admin.tickets.moves import clock
from inventory.errors import GateUnavailable
from orders.errors import TicketRefused
from orders.extension import require_at_gate, write_extension

if TYPE_CHECKING:
    from django.contrib.auth.models import User

ALONE_UP_TO = 20  # items that one person may approve; as in sql/0006_approvals.sql
THIRD_REPLAY = 3
WRONG_PASSWORDS: Final = 5  # of one user, within
WRONG_WITHIN: Final = timedelta(minutes=15)
_WRONG: Final = "APPROVAL_PASSWORD_WRONG"

log = structlog.get_logger(__name__)


def check_password(*, batch_id: int, user: "User", password: str) -> None:
    """Raise ApprovalRefused unless it is the user's own; a wrong one is recorded.

    After five wrong ones within fifteen minutes none is looked at, not even the right one, until
    the first of the five is older than that. The audit record is what counts them: it holds for all
    processes, and no cache that is emptied forgets it.

    Cost: one short transaction, which only the same user's own approvals wait for: it locks his
    row, so that guesses that are sent together are counted one after the other.
    """
    with transaction.atomic(durable=True):
        own = get_user_model().objects.select_for_update(no_key=True).get(pk=user.pk)
        now = clock()
        wrong = _wrong_since(own.pk, now - WRONG_WITHIN)
        if len(wrong) >= WRONG_PASSWORDS:
            why = _locked(wrong[-1] + WRONG_WITHIN - now)
        elif own.check_password(password):
            return
        else:
            record(ticket_id=None, kind=_WRONG, actor=user, detail={"batch": batch_id})
            why = "the password is wrong"
    if len(wrong) == WRONG_PASSWORDS - 1:  # with this one they are five: told once
        log.error(
            "approval_passwords_refused",
            alert="APPROVAL_PASSWORD",
            user=user.get_username(),
            batch=batch_id,
            until=(wrong[-1] + WRONG_WITHIN).isoformat(),
        )
    raise ApprovalRefused(why)


def _wrong_since(user_id: int, since: datetime) -> list[datetime]:
    """Return when a user's newest wrong passwords were given, the newest first, at most five."""
    found = AuditEvent.objects.filter(kind=_WRONG, user_id=user_id, at__gt=since)
    return list(found.order_by("-at").values_list("at", flat=True)[:WRONG_PASSWORDS])


def _locked(left: timedelta) -> str:
    minutes = max(1, -(-left // timedelta(minutes=1)))
    return (
        f"{WRONG_PASSWORDS} wrong passwords within {WRONG_WITHIN // timedelta(minutes=1)} minutes:"
        f" try again in {minutes} minute{'' if minutes == 1 else 's'}"
    )


def require_extensions(batch_id: int) -> None:
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


def require_not_expired(batch: ReplayBatch) -> None:
    """Raise StaleState when the plan's time has passed."""
    if batch.expires_at <= timezone.now():
        raise StaleState(f"the plan of batch {batch.pk} has expired: plan it again")


def lead_permissions(batch: ReplayBatch) -> frozenset[str]:
    """Return what whoever approves as an incident lead must have for this plan. One statement.

    `override_replay` for an extension or a third replay, `approve_second_level` for an edit or
    more than 20 messages, and for a plan that needs no lead.
    """
    found = (
        ReplayItem.objects.filter(batch=batch)
        .exclude(status=ItemStatus.BLOCKED)
        .aggregate(
            items=Count("pk"),
            edited=Count("pk", filter=Q(edit_diff__isnull=False)),
            often=Count("pk", filter=Q(replay_count__gte=THIRD_REPLAY)),
        )
    )
    wanted = set()
    if batch.extension_s or found["often"]:
        wanted.add(permissions.OVERRIDE_REPLAY)
    if found["edited"] or found["items"] > ALONE_UP_TO or not wanted:
        wanted.add(permissions.APPROVE_SECOND_LEVEL)
    return frozenset(wanted)


def is_lead(batch: ReplayBatch, user: "User") -> bool:
    """Tell whether this user's yes to this plan is an incident lead's."""
    return all(access.has(user, one) for one in lead_permissions(batch))


def give(batch: ReplayBatch, *, user: "User", lead: bool, comment: str) -> None:
    """Write one person's yes, inside the caller's transaction; the database refuses one's own."""
    if user.pk in (batch.requested_by_id, batch.edited_by_id):
        raise ApprovalRefused("another person must approve")
    if batch.disposition == Disposition.DISCARD:
        access.require(user, permissions.APPROVE_DISCARD)
    Approval.objects.create(
        batch=batch,
        requested_by_id=batch.requested_by_id,
        edited_by_id=batch.edited_by_id,
        plan_hash=batch.plan_hash,
        approver=user,
        lead=lead,
        comment=comment,
    )
    record(
        ticket_id=batch.ticket_id,
        kind="REPLAY_APPROVED_BY",
        actor=user,
        detail={"batch": batch.pk, "plan_hash": batch.plan_hash, "lead": lead, "comment": comment},
    )


def let_go(batch: ReplayBatch, *, user: "User") -> None:
    """APPROVED: the worker may start it. Extension rows are written in the same transaction.

    Raises:
        TicketRefused: an extension cannot be written.
    """
    now = timezone.now()
    move_batch(batch, to=BatchStatus.APPROVED, actor=user, approved_at=now)
    move_all(batch, before=[ItemStatus.PENDING_APPROVAL], to=ItemStatus.APPROVED)
    _write_extensions(batch, user, now)


def needed(batch_id: int) -> tuple[int, bool]:
    """Return how many people must approve, and whether one must be an incident lead."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT people, lead FROM dlq_admin_replay_batch AS batch,"
            " dlq_admin_approvals_needed(batch.id, batch.extension_s) WHERE batch.id = %s",
            [batch_id],
        )
        people, lead = cursor.fetchone()
    return people, lead


def missing(batch_id: int) -> str:
    """Return what an approval still lacks, in words; empty when it is complete, or no batch."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT dlq_admin_approvals_missing(%s)", [batch_id])
        return cursor.fetchone()[0] or ""


def _write_extensions(batch: ReplayBatch, user: "User", now: datetime) -> None:
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

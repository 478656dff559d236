"""What killed the messages, what shall become of them, and when it is safe to try."""

from typing import TYPE_CHECKING, Final

from django.db import transaction

from dlq_admin import access, permissions
from dlq_admin.contracts import TicketEvent
from dlq_admin.errors import GuardRefused
from dlq_admin.models.replay import ReplayBatch
from dlq_admin.models.ticket import Ticket
from dlq_admin.states import BATCH_ENDED, Cause, Disposition, SlaKind, TicketStatus
from dlq_admin.tickets import sla
from dlq_admin.tickets.moves import lock, move, require_reason, require_status
from inventory import readiness
from messaging.quarantine import OUTBOX_GROUP
from messaging.selectors import WorkerRecord, paused_groups, workers

if TYPE_CHECKING:
    from django.contrib.auth.models import User

_T = TicketStatus
_BATCH_OVER: Final = sorted(status.value for status in BATCH_ENDED)


def classify(
    *, ticket_id: int, cause: Cause, disposition: Disposition, analysis: str, user: "User"
) -> None:
    """Say why they died and what shall become of them: CLASSIFIED. May be said anew until READY.

    Raises:
        PermissionDenied: the user may not.
        GuardRefused: no text, or a plan is under way that was made for the old decision.
        StaleTicket: it is in no state for it.
    """
    access.require(user, permissions.CLASSIFY_TICKET)
    analysis = require_reason(analysis)
    with transaction.atomic(durable=True):
        ticket = lock(ticket_id)
        require_status(ticket, _T.ACKED, _T.CLASSIFIED, _T.FIXING, _T.READY)
        require_no_plan(ticket)
        move(
            ticket,
            _T.CLASSIFIED,
            kind=TicketEvent.CLASSIFIED,
            actor=user,
            detail={
                "cause": Cause(cause).value,
                "disposition": Disposition(disposition).value,
                "analysis": analysis,
            },
            cause=Cause(cause),
            disposition=Disposition(disposition),
            analysis=analysis,
        )
        sla.stop(ticket.pk, SlaKind.PLAN)


def begin_fix(*, ticket_id: int, user: "User") -> None:
    """Begin the fix of a CLASSIFIED ticket: FIXING.

    Raises:
        PermissionDenied: the user may not.
        GuardRefused: its messages are to be discarded.
        StaleTicket: it is not CLASSIFIED.
    """
    access.require(user, permissions.CLASSIFY_TICKET)
    with transaction.atomic(durable=True):
        ticket = lock(ticket_id)
        require_status(ticket, _T.CLASSIFIED)
        _not_discarded(ticket)
        move(ticket, _T.FIXING, kind=TicketEvent.FIX_BEGUN, actor=user)


def make_ready(
    *, ticket_id: int, user: "User", fix_reference: str = "", fix_build: int | None = None
) -> None:
    """Say that the messages can be dealt with now: READY.

    At once from CLASSIFIED only when nothing needs a fix: a transient cause whose dependencies are
    healthy now, or COMPENSATE, which does not run the handler. Else from FIXING, with the fix and
    the build that has it. A build that is named is looked at, wherever the ticket comes from: every
    live consumer of the group must report it or a later one. The ticket keeps what was named now,
    and nothing of a fix that was named for an earlier decision.

    Args:
        ticket_id: the ticket.
        user: needs `classify_ticket`.
        fix_reference: commit, change or configuration, for the audit.
        fix_build: the first SECKILL_BUILD that has it.

    Raises:
        PermissionDenied: the user may not.
        GuardRefused: one of the above is not so; the text says which.
        StaleTicket: it is neither CLASSIFIED nor FIXING.
    """
    access.require(user, permissions.CLASSIFY_TICKET)
    with transaction.atomic(durable=True):
        ticket = lock(ticket_id)
        require_status(ticket, _T.CLASSIFIED, _T.FIXING)
        _not_discarded(ticket)
        group = ticket.failure_group.consumer_group
        if ticket.status == _T.FIXING:
            if not fix_reference.strip() or fix_build is None:
                raise GuardRefused("name the fix and the first build that has it")
        elif ticket.disposition != Disposition.COMPENSATE:
            if ticket.cause != Cause.TRANSIENT:
                raise GuardRefused("only a transient cause is ready without a fix: begin one")
            _require_healthy(group)
        if fix_build is not None:
            require_build(group, fix_build)
        move(
            ticket,
            _T.READY,
            kind=TicketEvent.READY,
            actor=user,
            detail={"fix": fix_reference.strip(), "build": fix_build},
            fix_reference=fix_reference.strip(),
            fix_build=fix_build,
        )


def send_back(*, ticket_id: int, reason: str, user: "User") -> None:
    """Say that a READY ticket is not ready after all: FIXING.

    Raises:
        PermissionDenied: the user may not.
        GuardRefused: no reason, or a plan is under way.
        StaleTicket: it is not READY.
    """
    access.require(user, permissions.CLASSIFY_TICKET)
    reason = require_reason(reason)
    with transaction.atomic(durable=True):
        ticket = lock(ticket_id)
        require_status(ticket, _T.READY)
        require_no_plan(ticket)
        move(
            ticket,
            _T.FIXING,
            kind=TicketEvent.SENT_BACK,
            actor=user,
            detail={"reason": reason},
        )


def require_no_plan(ticket: Ticket) -> None:
    """Raise GuardRefused while a batch of the ticket is waiting, approved or running."""
    batch = ReplayBatch.objects.filter(ticket_id=ticket.pk).exclude(status__in=_BATCH_OVER).first()
    if batch is not None:
        raise GuardRefused(f"batch {batch.pk} is {batch.status}: end or abort it first")


def require_build(group: str, build: int) -> None:
    """Raise GuardRefused unless the group has live members and all of them run the fix."""
    members = _members(group)
    if not members:
        raise GuardRefused(f"no live member of {group}: start one that has the fix")
    old = sorted({member.build for member in members if member.build < build})
    if old:
        raise GuardRefused(
            f"a live member of {group} reports build {old[0]}: it would kill them again; deploy"
            f" build {build} everywhere first"
        )


def _require_healthy(group: str) -> None:
    if any(paused.group == group for paused in paused_groups()):
        raise GuardRefused(f"{group} is paused: resume it first")
    if not _members(group):
        raise GuardRefused(f"no live member of {group}")
    problems = readiness.problems()
    if problems:
        raise GuardRefused(f"the gate is not healthy: {problems[0]}")


def _members(group: str) -> list[WorkerRecord]:
    """Return the live loops of a group; rows of the outbox are the sender's."""
    return [
        worker
        for worker in workers()
        if worker.alive
        and (worker.role == "sender" if group == OUTBOX_GROUP else worker.group == group)
    ]


def _not_discarded(ticket: Ticket) -> None:
    if ticket.disposition == Disposition.DISCARD:
        raise GuardRefused("its messages are to be discarded: ask for that, or classify anew")

"""Taking a ticket, handing it on, parking it, taking it up again, opening it once more."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from django.contrib.auth import get_user_model
from django.db import transaction

from dlq_admin import access, audit, permissions
from dlq_admin.audit.record import SYSTEM
from dlq_admin.contracts import TicketEvent
from dlq_admin.errors import GuardRefused
from dlq_admin.models.ticket import Ticket
from dlq_admin.states import SlaKind, TicketStatus
from dlq_admin.tickets import sla
from dlq_admin.tickets.moves import (
    clock,
    lock,
    move,
    require_open,
    require_reason,
    require_status,
)

if TYPE_CHECKING:
    from django.contrib.auth.models import User

MAX_WAIT: Final = timedelta(hours=24)

_T = TicketStatus


def acknowledge(*, ticket_id: int, user: "User", assignee_id: int | None = None) -> None:
    """Take a NEW or REOPENED ticket, for oneself or for a colleague: ACKED.

    Args:
        ticket_id: the ticket.
        user: needs `triage_ticket`.
        assignee_id: who works on it; the user when None.

    Raises:
        PermissionDenied: the user may not.
        GuardRefused: the assignee cannot work on tickets.
        StaleTicket: it is neither NEW nor REOPENED.
    """
    access.require(user, permissions.TRIAGE_TICKET)
    assignee = _assignee(assignee_id, user)
    with transaction.atomic(durable=True):
        ticket = lock(ticket_id)
        require_status(ticket, _T.NEW, _T.REOPENED)
        move(
            ticket,
            _T.ACKED,
            kind=TicketEvent.ACKNOWLEDGED,
            actor=user,
            detail={"assignee": assignee.get_username()},
            assignee_id=assignee.pk,
        )
        sla.stop(ticket.pk, SlaKind.ACK)


def assign(*, ticket_id: int, assignee_id: int, user: "User") -> None:
    """Hand an open ticket that somebody has taken to another person.

    Raises:
        PermissionDenied: the user may not.
        GuardRefused: the assignee cannot work on tickets, or nobody has taken it yet.
        StaleTicket: it is not open.
    """
    access.require(user, permissions.TRIAGE_TICKET)
    assignee = _assignee(assignee_id, user)
    with transaction.atomic(durable=True):
        ticket = lock(ticket_id)
        require_open(ticket)
        if ticket.status in (_T.NEW, _T.REOPENED):
            raise GuardRefused("nobody has taken it yet: acknowledge it for that person")
        Ticket.objects.filter(pk=ticket.pk).update(assignee_id=assignee.pk)
        audit.record(
            ticket_id=ticket.pk,
            kind=TicketEvent.ASSIGNED,
            actor=user,
            detail={"assignee": assignee.get_username()},
        )


def park(*, ticket_id: int, until: datetime, reason: str, user: "User") -> None:
    """Let an open ticket wait for something, for 24 hours at most; its clocks wait with it.

    Raises:
        PermissionDenied: the user may not.
        GuardRefused: no reason, or `until` is not within the next 24 hours.
        StaleTicket: it is not open, or waits already.
    """
    access.require(user, permissions.TRIAGE_TICKET)
    reason = require_reason(reason)
    with transaction.atomic(durable=True):
        ticket = lock(ticket_id)
        now = clock()
        if not now < until <= now + MAX_WAIT:
            raise GuardRefused("a ticket waits for 24 hours at most, and until a time to come")
        require_open(ticket)
        move(
            ticket,
            _T.WAITING,
            kind=TicketEvent.PARKED,
            actor=user,
            detail={"reason": reason, "until": until.isoformat()},
            waiting_from=ticket.status,
            waiting_until=until,
            waiting_reason=reason,
        )


def resume(*, ticket_id: int, reason: str, user: "User") -> None:
    """Take a WAITING ticket up again, in the state it came from.

    Raises:
        PermissionDenied: the user may not.
        GuardRefused: no reason.
        StaleTicket: it does not wait.
    """
    access.require(user, permissions.TRIAGE_TICKET)
    reason = require_reason(reason)
    with transaction.atomic(durable=True):
        _resume(lock(ticket_id), actor=user, reason=reason)


def resume_due() -> int:
    """Take up what has waited long enough; returns how many. For the schedule."""
    due = Ticket.objects.filter(status=_T.WAITING, waiting_until__lte=clock())
    done = 0
    for pk in due.order_by("waiting_until").values_list("pk", flat=True)[:200]:
        with transaction.atomic(durable=True):
            ticket = lock(pk)
            until = ticket.waiting_until
            if ticket.status == _T.WAITING and until is not None and until <= clock():
                _resume(ticket, actor=SYSTEM, reason="its time is over")
                done += 1
    return done


def reopen(*, ticket_id: int, reason: str, user: "User") -> None:
    """Open a CLOSED ticket once more.

    Raises:
        PermissionDenied: the user may not.
        GuardRefused: no reason, or the failure group has an open ticket by now.
        StaleTicket: it is not CLOSED.
    """
    access.require(user, permissions.TRIAGE_TICKET)
    reason = require_reason(reason)
    with transaction.atomic(durable=True):
        reopen_locked(lock(ticket_id), actor=user, reason=reason)


def reopen_locked(ticket: Ticket, *, actor: "User | str", reason: str) -> None:
    """Open a locked CLOSED ticket once more, inside the caller's transaction; new clocks start."""
    require_status(ticket, _T.CLOSED)
    other = (
        Ticket.objects.filter(failure_group_id=ticket.failure_group_id)
        .exclude(pk=ticket.pk)
        .exclude(status__in=[_T.CLOSED, _T.DISCARDED, _T.MERGED])
        .first()
    )
    if other is not None:
        raise GuardRefused(f"DLQ-{other.pk} deals with the same failure: work there")
    move(
        ticket,
        _T.REOPENED,
        kind=TicketEvent.REOPENED,
        actor=actor,
        detail={"reason": reason},
        closed_at=None,
        closed_by=None,
        reopened_count=ticket.reopened_count + 1,
    )
    sla.start(ticket, SlaKind.ACK, SlaKind.PLAN, SlaKind.RESOLVE)


def _resume(ticket: Ticket, *, actor: "User | str", reason: str) -> None:
    require_status(ticket, _T.WAITING)
    sla.shift(ticket.pk, by=clock() - ticket.status_at)
    move(
        ticket,
        TicketStatus(ticket.waiting_from),
        kind=TicketEvent.RESUMED,
        actor=actor,
        detail={"reason": reason},
    )


def _assignee(pk: int | None, user: "User") -> "User":
    if pk is None:
        return user
    found = get_user_model().objects.filter(pk=pk).first()
    if found is None or not access.has(found, permissions.TRIAGE_TICKET):
        raise GuardRefused("this person may not work on tickets")
    return found

"""VERIFYING → CLOSED: only with proof. And what tickets do by themselves when nothing is left."""

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from django.db import transaction
from django.db.models import Exists, OuterRef

from dlq_admin import access, permissions
from dlq_admin.audit.record import SYSTEM
from dlq_admin.audit.verify import verify
from dlq_admin.contracts import TicketEvent
from dlq_admin.errors import GuardRefused
from dlq_admin.models.message import DlqMessage
from dlq_admin.models.replay import InvariantRun
from dlq_admin.models.ticket import Ticket
from dlq_admin.states import MessageStatus, Resolution, TicketStatus
from dlq_admin.tickets import sla
from dlq_admin.tickets.classify import require_no_plan
from dlq_admin.tickets.messages import open_count
from dlq_admin.tickets.moves import clock, lock, move, require_status
from dlq_admin.tickets.owed import require_no_glass

if TYPE_CHECKING:
    from django.contrib.auth.models import User

FRESH: Final = timedelta(minutes=10)
_BY_ITSELF: Final = (
    TicketStatus.NEW,
    TicketStatus.ACKED,
    TicketStatus.CLASSIFIED,
    TicketStatus.FIXING,
    TicketStatus.READY,
    TicketStatus.WAITING,
    TicketStatus.REOPENED,
)

# A person has judged them; with no open message there is nothing to fix, replay or discard.
_JUDGED: Final = (TicketStatus.CLASSIFIED, TicketStatus.FIXING, TicketStatus.READY)


def close(*, ticket_id: int, user: "User") -> None:
    """Close a VERIFYING ticket: every message ended, invariants pass and are fresh, chain intact.

    Raises:
        PermissionDenied: the user may not.
        GuardRefused: something is not proven; the text says what.
        StaleTicket: it is not VERIFYING.

    Cost: reads the ticket's audit chain.
    """
    access.require(user, permissions.CLOSE_TICKET)
    with transaction.atomic(durable=True):
        ticket = lock(ticket_id)
        require_status(ticket, TicketStatus.VERIFYING)
        why = _missing(ticket)
        if why:
            raise GuardRefused(why)
        move(
            ticket,
            TicketStatus.CLOSED,
            kind=TicketEvent.CLOSED,
            actor=user,
            closed_at=clock(),
            closed_by=user,
        )
        sla.stop(ticket.pk)


def why_not_close(*, ticket_id: int) -> str:
    """Return what a VERIFYING ticket still lacks to be closed; empty when nothing. For the page."""
    ticket = Ticket.objects.filter(pk=ticket_id).first()
    if ticket is None:
        return "there is no such ticket"
    if ticket.status != TicketStatus.VERIFYING:
        return f"it is {ticket.status}, not VERIFYING"
    return _missing(ticket)


def close_if_settled(ticket_id: int) -> bool:
    """Close a ticket all of whose messages turned out to be settled, inside the transaction.

    Returns:
        Whether it was closed; never while a plan is under way, or broken glass unapproved.
    """
    ticket = lock(ticket_id)
    if ticket.status not in _BY_ITSELF:
        return False
    messages = DlqMessage.objects.filter(ticket_id=ticket_id)
    if messages.exclude(resolution=Resolution.SETTLED).exists() or not messages.exists():
        return False
    try:
        require_no_plan(ticket)
        require_no_glass(ticket)
    except GuardRefused:
        return False
    move(
        ticket,
        TicketStatus.CLOSED,
        kind=TicketEvent.CLOSED,
        actor=SYSTEM,
        detail={"reason": "every effect was there already: the messages carry the evidence"},
        closed_at=clock(),
    )
    sla.stop(ticket_id)
    return True


def verify_ended() -> int:
    """Bring judged tickets whose every message has ended to VERIFYING; returns how many.

    The last message may end by itself (its effect was there, somebody compensated it) while others
    were replayed: no batch will end, and nothing else leads on. A person closes them, with proof.
    Left alone: tickets with a plan under way.

    Cost: one statement over open tickets, three for each that moves.
    """
    ended = Ticket.objects.filter(
        Exists(DlqMessage.objects.filter(ticket_id=OuterRef("pk"))),
        ~Exists(DlqMessage.objects.filter(ticket_id=OuterRef("pk"), status=MessageStatus.OPEN)),
        status__in=[status.value for status in _JUDGED],
    )
    moved = 0
    for ticket_id in ended.order_by("pk").values_list("pk", flat=True):
        with transaction.atomic():
            moved += _to_verifying(ticket_id)
    return moved


def _to_verifying(ticket_id: int) -> bool:
    ticket = lock(ticket_id)
    if ticket.status not in _JUDGED or open_count(ticket_id):
        return False
    try:
        require_no_plan(ticket)
    except GuardRefused:
        return False
    move(
        ticket,
        TicketStatus.VERIFYING,
        kind=TicketEvent.MESSAGES_ENDED,
        actor=SYSTEM,
        detail={"reason": "no message is left to deal with: prove it and close it"},
    )
    return True


def _missing(ticket: Ticket) -> str:
    open_ = open_count(ticket.pk)
    if open_:
        return f"{open_} messages have not ended: replay, compensate or discard them"
    try:
        require_no_plan(ticket)
        require_no_glass(ticket)
    except GuardRefused as refused:
        return str(refused)
    replayed = (
        DlqMessage.objects.filter(ticket_id=ticket.pk, status=MessageStatus.CLOSED)
        .exclude(resolution=Resolution.SETTLED)
        .exists()
    )
    run = InvariantRun.objects.filter(ticket_id=ticket.pk).order_by("-created_at").first()
    if replayed and run is None:
        return "nobody has looked at the invariants yet"
    if run is not None and not run.passed:
        return "the last look at the invariants found a breach"
    if run is not None and run.created_at is not None and clock() - run.created_at > FRESH:
        return "the last look at the invariants is older than 10 minutes: look again"
    found = verify(ticket_id=ticket.pk)
    return "" if found.ok else f"the audit chain is broken: {found.findings[0].what}"

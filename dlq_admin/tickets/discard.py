"""DISCARD: no effect, for good. Two people, and only when no reservation hangs on it."""

from typing import TYPE_CHECKING, Final

from django.core.exceptions import PermissionDenied
from django.db import connection, transaction

from dlq_admin import access, permissions
from dlq_admin.contracts import TicketEvent
from dlq_admin.errors import GuardRefused
from dlq_admin.models.ticket import Ticket
from dlq_admin.states import Disposition, Resolution, TicketStatus
from dlq_admin.tickets import sla
from dlq_admin.tickets.classify import require_no_plan
from dlq_admin.tickets.messages import resolve_open
from dlq_admin.tickets.moves import clock, lock, move, require_reason, require_status
from dlq_admin.tickets.owed import require_no_glass
from messaging.topology import CG_ORDER_CREATE

if TYPE_CHECKING:
    from django.contrib.auth.models import User

_T = TicketStatus

# Reservations without an outcome that open rows of this ticket's messages hold.
_HELD: Final = """
SELECT count(DISTINCT q.reservation_id) FROM dlq_message m
  JOIN messaging_quarantine q
    ON q.consumer_group = m.consumer_group AND q.message_id = m.message_id AND q.status = 'OPEN'
  LEFT JOIN orders_reservation r ON r.reservation_id = q.reservation_id
 WHERE m.ticket_id = %s AND m.status = 'OPEN' AND m.consumer_group = %s
   AND q.reservation_id IS NOT NULL AND r.reservation_id IS NULL
"""


def held_count(ticket_id: int) -> int:
    """Return how many buyers' reservations a ticket's open messages hold. One statement."""
    with connection.cursor() as cursor:
        cursor.execute(_HELD, [ticket_id, CG_ORDER_CREATE])
        return int(cursor.fetchone()[0])


def request_discard(*, ticket_id: int, reason: str, user: "User") -> None:
    """Ask for the messages of a CLASSIFIED ticket to be discarded: DISCARD_PENDING.

    Raises:
        PermissionDenied: the user may not.
        GuardRefused: no reason, another disposition, a buyer's reservation is held, or broken
            glass is not approved.
        StaleTicket: it is not CLASSIFIED.
    """
    access.require(user, permissions.DISCARD_MESSAGE)
    reason = require_reason(reason)
    with transaction.atomic(durable=True):
        ticket = lock(ticket_id)
        require_status(ticket, _T.CLASSIFIED)
        if ticket.disposition != Disposition.DISCARD:
            raise GuardRefused(f"it is classified for {ticket.disposition}: classify it anew first")
        _nothing_held(ticket)
        require_no_plan(ticket)
        require_no_glass(ticket)
        move(
            ticket,
            _T.DISCARD_PENDING,
            kind=TicketEvent.DISCARD_REQUESTED,
            actor=user,
            detail={"reason": reason},
            discard_requested_by=user,
            discard_approved_by=None,
            discard_reason=reason,
        )


def approve_discard(*, ticket_id: int, user: "User") -> int:
    """Discard: the second person's word. Messages, quarantine rows and ticket end together.

    Returns:
        How many messages were discarded.

    Raises:
        PermissionDenied: the user may not, or is the one who asked.
        GuardRefused: a buyer's reservation is held by now.
        StaleTicket: nobody asks for it.
    """
    access.require(user, permissions.APPROVE_DISCARD)
    with transaction.atomic(durable=True):
        ticket = lock(ticket_id)
        require_status(ticket, _T.DISCARD_PENDING)
        if ticket.discard_requested_by_id == user.pk:
            raise PermissionDenied("another person must approve")
        _nothing_held(ticket)
        ended = resolve_open(
            ticket.pk, resolution=Resolution.DISCARDED, evidence={"reason": ticket.discard_reason}
        )
        move(
            ticket,
            _T.DISCARDED,
            kind=TicketEvent.DISCARD_APPROVED,
            actor=user,
            detail={"messages": ended},
            discard_approved_by=user,
            closed_at=clock(),
            closed_by=user,
        )
        sla.stop(ticket.pk)
    return ended


def refuse_discard(*, ticket_id: int, reason: str, user: "User") -> None:
    """Refuse a discard: back to CLASSIFIED. Who asked may take it back, too.

    Raises:
        PermissionDenied: the user may neither approve nor did he ask.
        GuardRefused: no reason.
        StaleTicket: nobody asks for it.
    """
    reason = require_reason(reason)
    with transaction.atomic(durable=True):
        ticket = lock(ticket_id)
        own = ticket.discard_requested_by_id == user.pk
        access.require(user, permissions.DISCARD_MESSAGE if own else permissions.APPROVE_DISCARD)
        require_status(ticket, _T.DISCARD_PENDING)
        move(
            ticket,
            _T.CLASSIFIED,
            kind=TicketEvent.DISCARD_REFUSED,
            actor=user,
            detail={"reason": reason},
        )


def _nothing_held(ticket: Ticket) -> None:
    held = held_count(ticket.pk)
    if held:
        raise GuardRefused(
            f"{held} accepted buyers' units hang on these messages: replay or compensate them"
        )

"""Two tickets for one cause: one takes over the messages of the other."""

from typing import TYPE_CHECKING

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Greatest

from dlq_admin import access, audit, permissions
from dlq_admin.contracts import TicketEvent
from dlq_admin.errors import GuardRefused
from dlq_admin.models.message import DlqMessage
from dlq_admin.models.ticket import Ticket
from dlq_admin.states import TicketStatus
from dlq_admin.tickets import sla
from dlq_admin.tickets.classify import require_no_plan
from dlq_admin.tickets.moves import lock, move, require_open, require_reason
from dlq_admin.tickets.owed import require_no_glass

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def merge(*, ticket_id: int, into_id: int, reason: str, user: "User") -> None:
    """Move all messages of a ticket to another open one of the same consumer group: MERGED.

    What dies of its failure from now on goes there, too.

    Raises:
        PermissionDenied: the user may not.
        GuardRefused: no reason, the same ticket, another consumer group, a plan is under way,
            broken glass is not approved, or the other one waits for the approval of its discard.
        StaleTicket: one of them is not open, or the first is past the point.
    """
    access.require(user, permissions.TRIAGE_TICKET)
    reason = require_reason(reason)
    if ticket_id == into_id:
        raise GuardRefused("a ticket cannot be merged into itself")
    with transaction.atomic(durable=True):
        locked = {pk: lock(pk) for pk in sorted((ticket_id, into_id))}
        ticket, into = locked[ticket_id], locked[into_id]
        require_open(ticket)
        require_open(into)
        if ticket.failure_group.consumer_group != into.failure_group.consumer_group:
            raise GuardRefused("they are of two consumer groups: a replay serves one")
        if TicketStatus.DISCARD_PENDING in (into.status, into.waiting_from):
            raise GuardRefused(
                f"ticket {into_id} waits for the approval of its discard: decide on that first"
            )
        require_no_plan(ticket)
        require_no_glass(ticket)
        moved = DlqMessage.objects.filter(ticket_id=ticket_id).update(
            ticket_id=into_id, version=F("version") + 1
        )
        Ticket.objects.filter(pk=into_id).update(
            message_count=F("message_count") + moved,
            last_message_at=Greatest("last_message_at", ticket.last_message_at),
        )
        move(
            ticket,
            TicketStatus.MERGED,
            kind=TicketEvent.MERGED,
            actor=user,
            detail={"into": into_id, "messages": moved, "reason": reason},
            merged_into_id=into_id,
        )
        audit.record(
            ticket_id=into_id,
            kind=TicketEvent.MERGED,
            actor=user,
            detail={"took_over": ticket_id, "messages": moved, "reason": reason},
        )
        sla.stop(ticket_id)

"""What replays do to their ticket: the replay worker's transactions call these."""

from django.db import transaction

from dlq_admin.audit.record import SYSTEM
from dlq_admin.contracts import TicketEvent
from dlq_admin.models.replay import ReplayItem
from dlq_admin.models.ticket import Ticket
from dlq_admin.states import ItemStatus, TicketStatus
from dlq_admin.tickets.messages import open_count, resolve_replayed
from dlq_admin.tickets.moves import lock, move

_T = TicketStatus
_FAILED = [ItemStatus.VERIFY_FAILED.value, ItemStatus.FAILED_AGAIN.value]


def items_started(*, ticket_id: int) -> None:
    """The first item of a batch was claimed: READY (or VERIFYING, WAITING) → REPLAYING.

    Nothing changes while it is REPLAYING already. Inside the caller's transaction.

    Raises:
        StaleTicket: it is in no state for it.
    """
    with transaction.atomic():
        ticket = lock(ticket_id)
        if ticket.status != _T.REPLAYING:
            move(ticket, _T.REPLAYING, kind=TicketEvent.REPLAY_STARTED, actor=SYSTEM)


def items_finished(*, ticket_id: int) -> None:
    """Every item of a batch has ended: REPLAYING → VERIFYING, and on to FIXING when any failed.

    Messages whose item succeeded end with it. Inside the caller's transaction.
    """
    with transaction.atomic():
        ticket = lock(ticket_id)
        ended = resolve_replayed(ticket_id)
        if ticket.status == _T.WAITING and ticket.waiting_from != _T.REPLAYING:
            return
        if ticket.status not in (_T.REPLAYING, _T.WAITING):
            return
        move(
            ticket,
            _T.VERIFYING,
            kind=TicketEvent.REPLAY_FINISHED,
            actor=SYSTEM,
            detail={"resolved": ended, "open": open_count(ticket_id)},
        )
        failed = ReplayItem.objects.filter(
            batch__ticket_id=ticket_id, status__in=_FAILED, message__status="OPEN"
        ).count()
        if failed:
            back_to_fixing(lock(ticket_id), reason=f"{failed} items failed")


def back_to_fixing(ticket: Ticket, *, reason: str) -> None:
    """VERIFYING → FIXING: an item failed, or the same thing killed a message again."""
    move(
        ticket,
        _T.FIXING,
        kind=TicketEvent.SENT_BACK,
        actor=SYSTEM,
        detail={"reason": reason},
    )

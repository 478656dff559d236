"""What replays need of their ticket, and do to it: inside the transactions of plans and worker."""

from typing import Final

from django.db import transaction

from dlq_admin.audit.record import SYSTEM
from dlq_admin.contracts import TicketEvent
from dlq_admin.errors import GuardRefused
from dlq_admin.models.replay import ReplayItem
from dlq_admin.models.ticket import Ticket
from dlq_admin.states import Disposition, ItemStatus, TicketStatus
from dlq_admin.tickets.messages import open_count, resolve_replayed
from dlq_admin.tickets.moves import lock, move

_T = TicketStatus
_FAILED = [ItemStatus.VERIFY_FAILED.value, ItemStatus.FAILED_AGAIN.value]
_REPLAYS: Final = (Disposition.REPLAY, Disposition.REPLAY_EDITED)

# From READY on the guards of `make_ready` have held; before, nobody has looked at the fix.
_PAST_READY: Final = (_T.READY, _T.REPLAYING, _T.VERIFYING)
_INSTEAD: Final = {
    _T.WAITING: "take it up again first",
    _T.DISCARD_PENDING: "the discard must be refused first",
    _T.CLOSED: "reopen it first",
    _T.DISCARDED: "nothing is left to be planned",
}


def require_plannable(ticket: Ticket, disposition: Disposition) -> None:
    """Raise GuardRefused unless this may be planned for the ticket as it is now.

    A replay runs the handler that killed the messages. A ticket that became ready for a
    compensation was let through without a look at the consumers: it is not ready for a replay.

    Args:
        ticket: as it is; locked by whoever stores the plan.
        disposition: what the plan would do with the messages.
    """
    status = TicketStatus(ticket.status)
    if status is _T.MERGED:
        raise GuardRefused(f"the ticket is MERGED: plan in DLQ-{ticket.merged_into_id}")
    if status not in _PAST_READY:
        instead = _INSTEAD.get(status, "say that it is ready first")
        raise GuardRefused(f"the ticket is {status} by now: {instead}")
    looked_at = ticket.disposition in _REPLAYS or ticket.fix_build is not None
    if disposition in _REPLAYS and not looked_at:
        instead = (
            "classify it for a replay first"
            if status is _T.READY
            else "what is left can be compensated or discarded"
        )
        raise GuardRefused(
            f"it became ready as {ticket.disposition}, without a look at the consumers: {instead}"
        )


def items_started(*, ticket_id: int) -> None:
    """The first item of a batch was claimed: READY (or VERIFYING, WAITING) → REPLAYING.

    Nothing changes while it is REPLAYING already. Inside the caller's transaction.

    Raises:
        GuardRefused: it waits, and was not past READY when it was parked.
        StaleTicket: it is in no state for it.
    """
    with transaction.atomic():
        ticket = lock(ticket_id)
        if ticket.status == _T.WAITING and ticket.waiting_from not in _PAST_READY:
            raise GuardRefused(
                f"the ticket waits, and was {ticket.waiting_from}: take it up and make it ready"
            )
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

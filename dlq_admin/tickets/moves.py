"""One move of a ticket: its row locked, one guarded UPDATE, one audit event, one transaction."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db import connection
from django.db.models import F

from dlq_admin import audit
from dlq_admin.contracts import TicketEvent
from dlq_admin.errors import GuardRefused, NotFound, StaleTicket
from dlq_admin.models.ticket import Ticket
from dlq_admin.states import TICKET_ALLOWED, TICKET_OPEN, TicketStatus

if TYPE_CHECKING:
    from django.contrib.auth.models import User

_T = TicketStatus


def clock() -> datetime:
    """Return the database's clock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
    return now


def lock(ticket_id: int) -> Ticket:
    """Return a ticket, its row locked until the caller's transaction ends.

    Raises:
        NotFound: there is none.
    """
    row = Ticket.objects.select_for_update().filter(pk=ticket_id).first()
    if row is None:
        raise NotFound(f"there is no ticket {ticket_id}")
    return row


def require_status(ticket: Ticket, *allowed: TicketStatus) -> None:
    """Raise StaleTicket unless the ticket is in one of these states."""
    if ticket.status not in allowed:
        raise StaleTicket(ticket.status)


def require_open(ticket: Ticket) -> None:
    """Raise StaleTicket unless somebody still has to do something about it."""
    if ticket.status not in TICKET_OPEN:
        raise StaleTicket(ticket.status)


def require_reason(text: str) -> str:
    """Return the text without spaces around it; GuardRefused when nothing is left."""
    if not text.strip():
        raise GuardRefused("a reason is needed: it is the audit record")
    return text.strip()


def move(
    ticket: Ticket,
    to: TicketStatus,
    *,
    kind: TicketEvent,
    actor: "User | str",
    detail: Mapping[str, Any] | None = None,
    **changes: Any,
) -> None:
    """Bring a locked ticket into another state, and tell the audit trail.

    Args:
        ticket: from `lock`.
        to: a state that TICKET_ALLOWED knows from here.
        kind: what the audit trail calls it.
        actor: who, or SYSTEM.
        detail: more for the audit trail; never a payload.
        changes: columns that change with it.

    Raises:
        StaleTicket: not a legal move from its state, or somebody was faster.

    Cost: one update, one audit row.
    """
    before = TicketStatus(ticket.status)
    if to not in TICKET_ALLOWED[before]:
        raise StaleTicket(before)
    if before is _T.WAITING:
        changes |= {"waiting_from": "", "waiting_until": None}
    changed = Ticket.objects.filter(pk=ticket.pk, status=before).update(
        status=to, status_at=clock(), version=F("version") + 1, **changes
    )
    if not changed:
        raise StaleTicket(before)
    audit.record(
        ticket_id=ticket.pk,
        kind=kind,
        actor=actor,
        detail={"from": before.value, "to": to.value, **(detail or {})},
    )

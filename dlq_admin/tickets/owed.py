"""What a ticket owes before it may end: approvals of what was started behind broken glass."""

from dlq_admin.errors import GuardRefused
from dlq_admin.models.replay import BreakGlass
from dlq_admin.models.ticket import Ticket


def owed_approval(ticket: Ticket) -> str:
    """Return which broken glass of a ticket nobody has approved; empty when none. One statement."""
    glass = (
        BreakGlass.objects.filter(batch__ticket_id=ticket.pk, approved_at__isnull=True)
        .order_by("due_at")
        .first()
    )
    if glass is None:
        return ""
    return f"batch {glass.batch_id} was started behind broken glass: somebody must approve it first"


def require_no_glass(ticket: Ticket) -> None:
    """Raise GuardRefused while broken glass of the ticket lacks its approval."""
    owed = owed_approval(ticket)
    if owed:
        raise GuardRefused(owed)

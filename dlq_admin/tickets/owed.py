"""What a ticket owes before it may end: approvals of what was started behind broken glass."""

from dlq_admin.errors import GuardRefused
from dlq_admin.models.replay import BreakGlass
from dlq_admin.models.ticket import Ticket


def require_no_glass(ticket: Ticket) -> None:
    """Raise GuardRefused while broken glass of the ticket lacks its approval. One statement."""
    glass = (
        BreakGlass.objects.filter(batch__ticket_id=ticket.pk, approved_at__isnull=True)
        .order_by("due_at")
        .first()
    )
    if glass is not None:
        raise GuardRefused(
            f"batch {glass.batch_id} was started behind broken glass: somebody must approve it"
            " first"
        )

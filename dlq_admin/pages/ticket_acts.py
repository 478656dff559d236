"""What may be done on a ticket's page, when it may, and what usually comes next."""

from typing import Final

from dlq_admin import permissions
from dlq_admin.pages.acts import Act, Table
from dlq_admin.pages.plan_form import PlanForm, make_plan
from dlq_admin.selectors.tickets import TicketView
from dlq_admin.states import TicketStatus
from messaging.selectors import workers

_FLOW: Final = (
    TicketStatus.NEW, TicketStatus.ACKED, TicketStatus.CLASSIFIED, TicketStatus.FIXING,
    TicketStatus.READY, TicketStatus.REPLAYING, TicketStatus.VERIFYING, TicketStatus.CLOSED,
)  # fmt: skip

ACTS: Final = Table(
    acts=(
        Act(
            name="plan",
            label="Plan a replay",
            permission=permissions.PLAN_REPLAY,
            form=PlanForm,
            call=make_plan,
            done="Planned: look at what would happen, then ask for approval.",
            blocked=lambda ticket, user: "the ticket is over" if ticket.over else "",
            help="The selection is frozen, each message is dry run, nothing is sent yet.",
        ),
    )
)


def flow_of(ticket: TicketView) -> list[tuple[str, str]]:
    """Return the usual course and where the ticket stands on it; a side state comes last."""
    here = ticket.status
    if here not in _FLOW:
        return [*((status.value, "") for status in _FLOW), (here.value, "side")]
    place = _FLOW.index(here)
    return [
        (status.value, "done" if n < place else "now" if n == place else "")
        for n, status in enumerate(_FLOW)
    ]


def builds_of(group: str) -> list[int]:
    """Return the builds that a group's live consumers report, the oldest first. Two statements."""
    return sorted({worker.build for worker in workers() if worker.alive and worker.group == group})


def next_step(ticket: TicketView) -> str:
    """Return what usually comes next, in a sentence; empty when nothing does."""
    return _NEXT.get(ticket.status, "")


_NEXT: Final = {
    TicketStatus.NEW: "Next: somebody takes it.",
    TicketStatus.REOPENED: "It came back. Next: somebody takes it.",
    TicketStatus.ACKED: "Next: read the evidence and the domain state, then say what it is.",
    TicketStatus.CLASSIFIED: "Next: begin the fix, or say that it is ready when nothing needs one.",
    TicketStatus.FIXING: "Next: name the fix; a consumer must report its build.",
    TicketStatus.READY: "Next: plan, ask for approval; a second person approves.",
    TicketStatus.REPLAYING: "The worker is at it.",
    TicketStatus.VERIFYING: "Next: check the invariants, then close.",
    TicketStatus.DISCARD_PENDING: "Next: a second person decides on the discard.",
}

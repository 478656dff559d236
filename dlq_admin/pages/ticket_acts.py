"""What may be done on a ticket's page, when it may, and what usually comes next."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from dlq_admin import permissions, tickets
from dlq_admin.pages.acts import Act, ActForm, ReasonForm, Table
from dlq_admin.pages.plan_form import PlanForm, make_plan
from dlq_admin.pages.ticket_forms import (
    ApproveDiscardForm,
    AssignForm,
    ClassifyForm,
    MergeForm,
    ParkForm,
    ReadyForm,
    assign,
    park,
)
from dlq_admin.selectors.tickets import TicketView
from dlq_admin.states import TICKET_ALLOWED, Disposition, TicketStatus
from messaging.selectors import workers

if TYPE_CHECKING:
    from django.contrib.auth.models import User

_T = TicketStatus
_FLOW: Final = (
    _T.NEW, _T.ACKED, _T.CLASSIFIED, _T.FIXING, _T.READY, _T.REPLAYING, _T.VERIFYING, _T.CLOSED,
)  # fmt: skip


def _in(*wanted: TicketStatus) -> Callable[[TicketView, "User"], str]:
    """Return why a ticket is in no state for an act; empty when it is."""
    names = " or ".join(status.value.lower().replace("_", " ") for status in wanted)

    def blocked(ticket: TicketView, user: "User") -> str:
        return "" if ticket.status in wanted else f"only while it is {names}"

    return blocked


def _open(ticket: TicketView, user: "User") -> str:
    return "the ticket is over" if ticket.over else ""


def _may_become(to: TicketStatus) -> Callable[[TicketView, "User"], str]:
    """Return why a ticket cannot go to a state; empty when it can."""

    def blocked(ticket: TicketView, user: "User") -> str:
        may = to in TICKET_ALLOWED[ticket.status]
        return "" if may else f"not while it is {ticket.status.lower()}"

    return blocked


def _no_discard(ticket: TicketView, user: "User") -> str:
    if ticket.status is not _T.CLASSIFIED or ticket.disposition != Disposition.DISCARD:
        return "only when it is classified for discard"
    if ticket.held == 1:
        return "1 buyer's unit hangs on it"
    return f"{ticket.held} buyers' units hang on it" if ticket.held else ""


def _not_second(ticket: TicketView, user: "User") -> str:
    if ticket.status is not _T.DISCARD_PENDING:
        return "nobody asks to discard it"
    return "another person must approve" if ticket.discard_requested_by_id == user.pk else ""


def _not_mine(ticket: TicketView, user: "User") -> str:
    if ticket.status is not _T.DISCARD_PENDING:
        return "nobody asks to discard it"
    return "" if ticket.discard_requested_by_id == user.pk else "somebody else asked"


def _not_closable(ticket: TicketView, user: "User") -> str:
    if ticket.status is not _T.VERIFYING:
        return "only when everything was replayed and is being verified"
    return tickets.why_not_close(ticket_id=ticket.id)


ACTS: Final = Table(
    acts=(
        Act(
            name="take", label="Take it", permission=permissions.TRIAGE_TICKET, form=ActForm,
            call=tickets.acknowledge, done="It is yours.", blocked=_in(_T.NEW, _T.REOPENED),
            help="You work on it from here on; its first clock stops.",
        ),
        Act(
            name="classify", label="Classify", permission=permissions.CLASSIFY_TICKET,
            form=ClassifyForm, call=tickets.classify, done="Classified.",
            blocked=_in(_T.ACKED, _T.CLASSIFIED, _T.FIXING, _T.READY),
        ),
        Act(
            name="fix", label="Begin the fix", permission=permissions.CLASSIFY_TICKET, form=ActForm,
            call=tickets.begin_fix, done="The fix has begun.", blocked=_in(_T.CLASSIFIED),
        ),
        Act(
            name="ready", label="It is ready", permission=permissions.CLASSIFY_TICKET,
            form=ReadyForm, call=tickets.make_ready, done="Ready: its messages can be planned.",
            blocked=_in(_T.CLASSIFIED, _T.FIXING),
            help="At once for a transient cause or a compensation; else with the fix, once every"
            " consumer reports its build.",
        ),
        Act(
            name="plan", label="Plan", permission=permissions.PLAN_REPLAY, form=PlanForm,
            call=make_plan, done="Planned: look at what would happen, then ask for approval.",
            blocked=_in(_T.READY, _T.REPLAYING, _T.VERIFYING),
            help="The selection is frozen, each message is dry run, nothing is sent yet.",
        ),
        Act(
            name="close", label="Close", permission=permissions.CLOSE_TICKET, form=ActForm,
            call=tickets.close, done="Closed, with proof.", blocked=_not_closable,
        ),
        Act(
            name="approve-discard", label="Approve the discard",
            permission=permissions.APPROVE_DISCARD, form=ApproveDiscardForm,
            call=tickets.approve_discard, done="Discarded.", blocked=_not_second, danger=True,
        ),
        Act(
            name="refuse-discard", label="Refuse the discard",
            permission=permissions.APPROVE_DISCARD, form=ReasonForm, call=tickets.refuse_discard,
            done="Refused: classified again.", blocked=_not_second,
        ),
        Act(
            name="withdraw-discard", label="Take the request back",
            permission=permissions.DISCARD_MESSAGE, form=ReasonForm, call=tickets.refuse_discard,
            done="Taken back.", blocked=_not_mine,
        ),
        Act(
            name="discard", label="Ask to discard", permission=permissions.DISCARD_MESSAGE,
            form=ReasonForm, call=tickets.request_discard, done="A second person decides now.",
            blocked=_no_discard, danger=True,
            help="No effect, for good. Only when no buyer's unit hangs on it.",
        ),
        Act(
            name="send-back", label="Not ready after all", permission=permissions.CLASSIFY_TICKET,
            form=ReasonForm, call=tickets.send_back, done="Back to fixing.", blocked=_in(_T.READY),
        ),
        Act(
            name="resume", label="Take it up again", permission=permissions.TRIAGE_TICKET,
            form=ReasonForm, call=tickets.resume, done="Taken up again.", blocked=_in(_T.WAITING),
        ),
        Act(
            name="reopen", label="Reopen", permission=permissions.TRIAGE_TICKET, form=ReasonForm,
            call=tickets.reopen, done="Open once more.", blocked=_in(_T.CLOSED),
        ),
        Act(
            name="assign", label="Hand it on", permission=permissions.TRIAGE_TICKET,
            form=AssignForm, call=assign, done="Handed on.", blocked=_open,
        ),
        Act(
            name="park", label="Let it wait", permission=permissions.TRIAGE_TICKET, form=ParkForm,
            call=park, done="It waits, and so do its clocks.",
            blocked=_may_become(_T.WAITING),
        ),
        Act(
            name="merge", label="Merge into another", permission=permissions.TRIAGE_TICKET,
            form=MergeForm, call=tickets.merge, done="Merged.", danger=True,
            blocked=_may_become(_T.MERGED),
        ),
    )
)  # fmt: skip
_NEXT: Final = {
    _T.NEW: "Next: somebody takes it.",
    _T.REOPENED: "It came back. Next: somebody takes it.",
    _T.ACKED: "Next: read the evidence and the domain state, then say what it is.",
    _T.CLASSIFIED: "Next: begin the fix, or say that it is ready when nothing needs one.",
    _T.FIXING: "Next: deploy the fix; when its build reports, say that it is ready.",
    _T.READY: "Next: dry run, plan, ask for approval; a second person approves.",
    _T.REPLAYING: "The worker is at it: see its batch.",
    _T.VERIFYING: "Next: check the invariants, then close.",
    _T.DISCARD_PENDING: "Next: a second person decides on the discard.",
}


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
    if ticket.status is _T.VERIFYING and ticket.open:
        return "Next: plan what is still open; then check the invariants and close."
    return _NEXT.get(ticket.status, "")

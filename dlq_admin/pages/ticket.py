"""A ticket with its tabs, and everything that may be done from there."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
from django import forms
from django.contrib import messages as notes
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from ulid import ULID

from dlq_admin import dry_run as dry
from dlq_admin import permissions, replay
from dlq_admin.dry_run import domain_state
from dlq_admin.errors import DlqAdminError
from dlq_admin.pages import shell
from dlq_admin.pages.acts import REASON, ActForm, missing_permission, see_other, send, shown
from dlq_admin.pages.exposure import editable_part, shown_payload
from dlq_admin.pages.guard import acting_user, action, action_by_name, page
from dlq_admin.pages.keyset import number, page_of
from dlq_admin.pages.ticket_acts import ACTS, builds_of, flow_of, next_step
from dlq_admin.replay import selectors as replays
from dlq_admin.selectors.audit import event_page
from dlq_admin.selectors.batches import approvals_of, batch_page
from dlq_admin.selectors.messages import MessageView, first_message, message_page, message_view
from dlq_admin.selectors.tickets import TicketView, ticket_view
from dlq_admin.states import Disposition, TicketStatus
from dlq_admin.tickets import discard

TABS: Final = (
    ("evidence", "Evidence"),
    ("domain", "Domain state"),
    ("plan", "Dry-run plan"),
    ("approvals", "Approvals"),
    ("timeline", "Timeline"),
    ("invariants", "Invariants"),
)
_BATCHES: Final = 50
_BUYER: Final = ("buyer", "user_id")


class DryRunForm(forms.Form):
    """What to look at."""

    disposition = forms.ChoiceField(
        label="What would be done",
        choices=[
            (one.value, one.value.capitalize())
            for one in (Disposition.REPLAY, Disposition.COMPENSATE, Disposition.DISCARD)
        ],
    )
    extension_s = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=86_400,
        initial=0,
        label="Extension, seconds",
    )


class EditForm(ActForm):
    """The free fields of a body, to be sent instead."""

    fields_json = forms.CharField(
        max_length=262_144,
        strip=False,
        label="Free fields (JSON)",
        widget=forms.Textarea(attrs={"class": "mono", "spellcheck": "false"}),
    )
    reason = REASON

    def clean(self) -> dict[str, Any] | None:
        """Read the JSON."""
        data = super().clean() or {}
        try:
            value = msgspec.json.decode(data.get("fields_json", ""))
        except (msgspec.MsgspecError, RecursionError) as error:
            self.add_error("fields_json", f"this is no JSON: {error}")
            return data
        if not isinstance(value, dict):
            self.add_error("fields_json", "this is no JSON object")
        return data | {"fields": value}


@page(permissions.VIEW_CONSOLE)
def ticket(request: HttpRequest, ticket_id: int) -> HttpResponse:
    """Show a ticket; `tab` and `message` say which part of it."""
    pk = number(request.GET.get("message", ""), otherwise=0)
    found = message_view(pk) if pk else None
    if found is not None and found.ticket_id != ticket_id:
        found = None
    return show(request, ticket_id, tab=request.GET.get("tab", ""), message=found)


@action_by_name(ACTS.by_name)
def act(request: HttpRequest, ticket_id: int, name: str) -> HttpResponse:
    """Carry out one act on a ticket."""
    chosen = ACTS.by_name[name]
    form = chosen.form(request.POST)
    sent = send(request, chosen, form, ticket_id=ticket_id)
    tab = request.GET.get("tab", "")
    if sent.redirect:
        batch_id = getattr(sent.result, "batch_id", None)
        if batch_id is not None:
            return see_other(reverse("dlq:batch", args=[batch_id]))
        return see_other(f"{reverse('dlq:ticket', args=[ticket_id])}?tab={tab}")
    return show(request, ticket_id, tab=tab, bound={name: form}, status=sent.status)


@action(permissions.PLAN_REPLAY)
def check_invariants(request: HttpRequest, ticket_id: int) -> HttpResponse:
    """Look at everything that the ticket touched; the look is kept as evidence."""
    try:
        found = replay.check_now(ticket_id=ticket_id, user=acting_user(request))
    except (DlqAdminError, PermissionDenied) as error:
        notes.error(request, str(error))
    else:
        if found is None:
            notes.warning(request, "The gate did not answer: nothing can be said now.")
        else:
            word = "PASS" if found.passed else "FAIL"
            notes.info(request, f"{word}: {found.checked} messages were looked at.")
    return see_other(f"{reverse('dlq:ticket', args=[ticket_id])}?tab=invariants")


def show(
    request: HttpRequest,
    ticket_id: int,
    *,
    tab: str,
    message: MessageView | None = None,
    bound: Mapping[str, ActForm] | None = None,
    more: Mapping[str, Any] | None = None,
    status: int = 200,
) -> HttpResponse:
    """Render a ticket.

    Args:
        request: of the page.
        ticket_id: which ticket.
        tab: which tab; the first for anything else.
        message: the message that its tabs are about; the oldest open one when None.
        bound: forms that were refused, by the name of their act, with what was typed.
        more: further context of the tab.
        status: of the answer.
    """
    found = ticket_view(ticket_id)
    if found is None:
        raise Http404(f"no ticket {ticket_id}")
    tab = tab if tab in dict(TABS) else TABS[0][0]
    if message is None:
        pk = first_message(ticket_id)
        message = message_view(pk) if pk is not None else None
    url = reverse("dlq:ticket", args=[ticket_id])
    pending = found.status is TicketStatus.DISCARD_PENDING
    asked = discard.asked(ticket_id) if pending else None
    context = {
        "page_url": url,
        "ticket": found,
        "message": message,
        "tab": tab,
        "tabs": TABS,
        "tab_template": f"dlq_admin/tabs/{tab}.html",
        "next_step": next_step(found),
        "broken": [one for one in replays.glass_of(ticket_id=ticket_id) if not one.approved_at],
        "discard": asked,
        "discard_why_not": discard.why_not_approve(ticket_id) if pending else "",
        "flow": flow_of(found),
        "builds": builds_of(found.group) if found.fix_build is not None else [],
        "acts": shown(
            ACTS.acts,
            request=request,
            subject=found,
            url=lambda one: f"{url}{one.name}/?tab={tab}",
            bound=bound or {},
            initial={
                "approve-discard": {"messages_sha256": asked.messages_sha256 if asked else ""}
            },
        ),
        **_TAB[tab](request, found, message),
        **(more or {}),
    }
    return TemplateResponse(
        request,
        "dlq_admin/ticket.html",
        shell.context(request, here="inbox", title=f"Ticket {ticket_id}") | context,
        status=status,
    )


def _evidence(
    request: HttpRequest, found: TicketView, message: MessageView | None
) -> dict[str, Any]:
    return {
        "page": page_of(
            request,
            lambda before, limit: message_page(
                ticket_id=found.id, before=number(before), limit=limit
            ),
            key=lambda row: row.id,
        ),
        "payload": shown_payload(request, message) if message else None,
        "may_plan": not missing_permission(request, permissions.PLAN_REPLAY),
        "chosen": [number(pk) for pk in request.POST.getlist("messages")],
    }


def _domain(request: HttpRequest, found: TicketView, message: MessageView | None) -> dict[str, Any]:
    if message is None:
        return {}
    state = domain_state(message_pk=message.id, user=acting_user(request))
    if missing_permission(request, permissions.VIEW_PAYLOAD_LIMITED):
        state = replace(state, facts=_no_buyer(state.facts), gate=_no_buyer(state.gate))
    return {"domain": state}


def _no_buyer(pairs: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Hide who buys from those who see bodies masked."""
    return [(name, "***" if name in _BUYER and value else value) for name, value in pairs]


def _plan(request: HttpRequest, found: TicketView, message: MessageView | None) -> dict[str, Any]:
    return {
        "dry": dry.latest(message_pk=message.id) if message else None,
        "dry_form": DryRunForm(),
        "dry_why": missing_permission(request, permissions.PLAN_REPLAY),
        "batches": batch_page(before=number(""), limit=_BATCHES, ticket_id=found.id),
        "edit_form": _edit_form(request, message),
        "edit_why": missing_permission(request, permissions.EDIT_PAYLOAD),
    }


def _edit_form(request: HttpRequest, message: MessageView | None) -> EditForm | None:
    """Return the form that edits a message; none for a body that is no JSON object.

    Who may not edit gets no form, only the reason: a disabled form still carries the body.
    """
    if message is None or missing_permission(request, permissions.EDIT_PAYLOAD):
        return None
    free = editable_part(request, message.body)
    return EditForm(initial={"fields_json": free}) if free else None


def _approvals(
    request: HttpRequest, found: TicketView, message: MessageView | None
) -> dict[str, Any]:
    lines = batch_page(before=number(""), limit=_BATCHES, ticket_id=found.id)
    given = approvals_of([line.id for line in lines])
    return {"batches": [(line, given.get(line.id, [])) for line in lines]}


def _timeline(
    request: HttpRequest, found: TicketView, message: MessageView | None
) -> dict[str, Any]:
    return {
        "page": page_of(
            request,
            lambda before, limit: event_page(
                before=number(before), limit=limit, ticket_id=found.id
            ),
            key=lambda row: row.id,
        )
    }


def _invariants(
    request: HttpRequest, found: TicketView, message: MessageView | None
) -> dict[str, Any]:
    return {
        "runs": replays.invariant_runs(found.id),
        "submission": str(ULID()),
        "check_why": missing_permission(request, permissions.PLAN_REPLAY),
    }


_TAB: Final = {
    "evidence": _evidence,
    "domain": _domain,
    "plan": _plan,
    "approvals": _approvals,
    "timeline": _timeline,
    "invariants": _invariants,
}

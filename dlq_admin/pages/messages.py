"""What may be done with one dead message: look into it, dry run it, edit it for a replay."""

from django.contrib import messages as notes
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from dlq_admin import dry_run as dry
from dlq_admin import permissions, replay
from dlq_admin.errors import DlqAdminError
from dlq_admin.pages import ticket
from dlq_admin.pages.acts import see_other
from dlq_admin.pages.exposure import whole_payload, with_edited_part
from dlq_admin.pages.guard import acting_user, action, page
from dlq_admin.selectors.messages import MessageView, message_view
from dlq_admin.states import Disposition


@page(permissions.VIEW_CONSOLE)
def message(request: HttpRequest, message_pk: int) -> HttpResponse:
    """Go to the message at its ticket."""
    found = _message(message_pk)
    if found.ticket_id is None:
        raise Http404("this message has no ticket")
    return HttpResponseRedirect(_at(found, "evidence"))


@action(permissions.VIEW_PAYLOAD_FULL)
def reveal(request: HttpRequest, message_pk: int) -> HttpResponse:
    """Show the whole body; the look is recorded first."""
    found = _message(message_pk)
    payload = whole_payload(request, found)
    return ticket.show(
        request, _ticket_of(found), tab="evidence", message=found, more={"payload": payload}
    )


@action(permissions.EDIT_PAYLOAD)
def edit(request: HttpRequest, message_pk: int) -> HttpResponse:
    """Plan the replay of an edited body. What was typed comes back when it is refused."""
    found = _message(message_pk)
    form = ticket.EditForm(request.POST)
    status = 422
    if form.is_valid():
        try:
            made = replay.plan_edited(
                ticket_id=_ticket_of(found),
                message_pk=message_pk,
                body=with_edited_part(request, found.body, form.cleaned_data["fields"]),
                user=acting_user(request),
                reason=form.cleaned_data["reason"],
                idempotency_key=form.cleaned_data["submission"],
            )
        except DlqAdminError as error:
            form.add_error(None, str(error))
            status = 409
        else:
            notes.success(request, "Planned. Look at the difference, then ask for approval.")
            return see_other(reverse("dlq:batch", args=[made.batch_id]))
    return ticket.show(
        request, _ticket_of(found), tab="plan", message=found, status=status,
        more={"edit_form": form},
    )  # fmt: skip


@action(permissions.PLAN_REPLAY)
def dry_run(request: HttpRequest, message_pk: int) -> HttpResponse:
    """Say what a replay would do, and keep it."""
    found = _message(message_pk)
    form = ticket.DryRunForm(request.POST)
    if form.is_valid():
        try:
            dry.dry_run(
                message_pk=message_pk,
                disposition=Disposition(form.cleaned_data["disposition"]),
                user=acting_user(request),
                extension_s=form.cleaned_data["extension_s"] or 0,
            )
        except PermissionDenied as error:
            form.add_error(None, f"not permitted: {error}")
        except DlqAdminError as error:
            form.add_error(None, str(error))
        else:
            return see_other(_at(found, "plan"))
    return ticket.show(
        request, _ticket_of(found), tab="plan", message=found, status=422, more={"dry_form": form}
    )


def _message(message_pk: int) -> MessageView:
    found = message_view(message_pk)
    if found is None:
        raise Http404(f"no dead message {message_pk}")
    return found


def _ticket_of(found: MessageView) -> int:
    if found.ticket_id is None:
        raise Http404("this message has no ticket")
    return found.ticket_id


def _at(found: MessageView, tab: str) -> str:
    address = reverse("dlq:ticket", args=[_ticket_of(found)])
    return f"{address}?tab={tab}&message={found.id}"

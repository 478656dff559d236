"""The audit explorer: read, prove, hand out."""

from datetime import datetime
from typing import Any

from django import forms
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import reverse

from dlq_admin import permissions
from dlq_admin.audit.export import export as export_lines
from dlq_admin.audit.verify import verify
from dlq_admin.pages import shell
from dlq_admin.pages.acts import missing_permission
from dlq_admin.pages.guard import acting_user, action, page
from dlq_admin.pages.keyset import HIGHEST, number, page_of
from dlq_admin.pages.stream import in_thread
from dlq_admin.selectors import audit as reads

_NO_TICKET_ASKED = -1


class ScopeForm(forms.Form):
    """What to prove or hand out: one ticket, or everything when it is empty."""

    ticket = forms.IntegerField(required=False, min_value=0, label="Ticket")


class ExportForm(ScopeForm):
    """What to hand out, and how."""

    form = forms.ChoiceField(choices=[("jsonl", "JSON lines"), ("csv", "CSV")], label="As")
    since = forms.DateTimeField(required=False, label="From (UTC)", widget=forms.TextInput(
        attrs={"placeholder": "2026-01-31 18:00"}))  # fmt: skip
    until = forms.DateTimeField(required=False, label="Until (UTC)", widget=forms.TextInput(
        attrs={"placeholder": "2026-01-31 20:00"}))  # fmt: skip

    def clean(self) -> dict[str, Any] | None:
        """The span must not be empty."""
        data = super().clean() or {}
        since: datetime | None = data.get("since")
        until: datetime | None = data.get("until")
        if since and until and since >= until:
            self.add_error("until", "this is not after the beginning")
        return data


@page(permissions.VIEW_AUDIT)
def audit(request: HttpRequest) -> HttpResponse:
    """List events, newest first; one ticket's, one person's, one kind's."""
    return _show(request)


@action(permissions.VERIFY_AUDIT)
def verify_now(request: HttpRequest) -> HttpResponse:
    """Compute every hash again and say what was found. Reads only."""
    form = ScopeForm(request.POST)
    if not form.is_valid():
        return _show(request, verify_form=form, status=422)
    found = verify(ticket_id=form.cleaned_data["ticket"])
    return _show(request, verify_form=form, proof=found)


@action(permissions.EXPORT_AUDIT)
def export(request: HttpRequest) -> HttpResponseBase:
    """Hand the record out; that it was handed out is an event itself."""
    form = ExportForm(request.POST)
    if not form.is_valid():
        return _show(request, export_form=form, status=422)
    wanted = form.cleaned_data["form"]
    lines = export_lines(
        user=acting_user(request),
        form=wanted,
        ticket_id=form.cleaned_data["ticket"],
        since=form.cleaned_data["since"],
        until=form.cleaned_data["until"],
    )
    kind = "text/csv" if wanted == "csv" else "application/x-ndjson"
    return StreamingHttpResponse(
        in_thread(lines) if isinstance(request, ASGIRequest) else lines,
        content_type=f"{kind}; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="dlq-audit.{wanted}"'},
    )


def _show(request: HttpRequest, *, status: int = 200, **more: Any) -> HttpResponse:
    ticket = number(request.GET.get("ticket", ""), otherwise=_NO_TICKET_ASKED)
    actor = request.GET.get("actor", "")[:150]
    kind = request.GET.get("kind", "")[:48].upper()
    rows = page_of(
        request,
        lambda before, limit: reads.event_page(
            before=number(before, otherwise=HIGHEST),
            limit=limit,
            ticket_id=None if ticket == _NO_TICKET_ASKED else ticket,
            actor=actor,
            kind=kind,
        ),
        key=lambda row: row.id,
    )
    first = {} if ticket == _NO_TICKET_ASKED else {"ticket": ticket}
    return TemplateResponse(
        request,
        "dlq_admin/audit.html",
        shell.context(
            request,
            here="audit",
            title="Audit explorer",
            page_url=reverse("dlq:audit"),
            page=rows,
            actor=actor,
            kind=kind,
            ticket="" if ticket == _NO_TICKET_ASKED else ticket,
            anchor=reads.newest_anchor(),
            verify_why=missing_permission(request, permissions.VERIFY_AUDIT),
            export_why=missing_permission(request, permissions.EXPORT_AUDIT),
        )
        | {"verify_form": ScopeForm(initial=first), "export_form": ExportForm(initial=first)}
        | more,
        status=status,
    )

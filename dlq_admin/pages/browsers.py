"""The transport's own tables, read only: quarantine, outbox, inbox."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from dlq_admin import permissions
from dlq_admin.pages import shell
from dlq_admin.pages.guard import page
from dlq_admin.pages.keyset import HIGHEST, number, page_of
from messaging import browse
from messaging.topology import CG_ORDER_CREATE


@page(permissions.VIEW_CONSOLE)
def quarantine(request: HttpRequest) -> HttpResponse:
    """List messages that a loop gave up on."""
    status = _one_of(request, "status", ("OPEN", "RESOLVED"))
    group = _one_of(request, "group", browse.known_groups())
    rows = page_of(
        request,
        lambda before, limit: browse.quarantine_page(
            before=number(before, otherwise=HIGHEST), limit=limit, status=status, group=group
        ),
        key=lambda row: row.id,
    )
    return _show(
        request, "quarantine", title="Quarantine", page=rows, status=status, group=group,
        choices=("OPEN", "RESOLVED"), groups=browse.known_groups(),
    )  # fmt: skip


@page(permissions.VIEW_CONSOLE)
def outbox(request: HttpRequest) -> HttpResponse:
    """List messages that were, or are to be, published."""
    state = _one_of(request, "state", browse.OUTBOX_STATES)
    rows = page_of(
        request,
        lambda before, limit: browse.outbox_page(
            before=number(before, otherwise=HIGHEST), limit=limit, state=state
        ),
        key=lambda row: row.id,
    )
    return _show(
        request, "outbox", title="Outbox", page=rows, state=state, choices=browse.OUTBOX_STATES
    )


@page(permissions.VIEW_CONSOLE)
def inbox_rows(request: HttpRequest) -> HttpResponse:
    """List what a group did with each message."""
    group = _one_of(request, "group", browse.known_groups()) or CG_ORDER_CREATE
    rows = page_of(
        request,
        lambda before, limit: browse.inbox_page(group=group, before=before, limit=limit),
        key=lambda row: row.message_id,
    )
    return _show(
        request, "inbox_rows", title="Inbox rows", page=rows, group=group,
        groups=browse.known_groups(),
    )  # fmt: skip


def _one_of(request: HttpRequest, name: str, allowed: object) -> str:
    value = request.GET.get(name, "")
    return value if isinstance(allowed, list | tuple) and value in allowed else ""


def _show(request: HttpRequest, name: str, *, title: str, **context: Any) -> HttpResponse:
    return TemplateResponse(
        request, f"dlq_admin/{name}.html", shell.context(request, here=name, title=title, **context)
    )

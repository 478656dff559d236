"""The inbox: one line for each kind of failure, and what came in."""

from typing import Final

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from dlq_admin import permissions
from dlq_admin.pages import charts, shell
from dlq_admin.pages.guard import page
from dlq_admin.pages.keyset import number, page_of
from dlq_admin.selectors import tickets as reads

_FILTERS: Final = (("open", "open"), ("NEW", "new"), ("over", "over"), ("", "all"))


@page(permissions.VIEW_CONSOLE)
def inbox(request: HttpRequest) -> HttpResponse:
    """List tickets; the list is read again while somebody looks at it."""
    show = request.GET.get("show", "open")
    show = show if show in dict(_FILTERS) else "open"
    rows = page_of(
        request,
        lambda before, limit: reads.ticket_page(before=number(before), limit=limit, show=show),
        key=lambda row: row.id,
    )
    minutes, ages = reads.inflow(), reads.ages()
    names = [f"-{60 - place} min" if place % 15 == 0 else "" for place in range(60)]
    context = shell.context(
        request,
        here="inbox",
        title="Inbox",
        page=rows,
        show=show,
        filters=_FILTERS,
        rows=[
            (row, charts.sparkline(row.spark, label=f"{sum(row.spark)} in the last 24 hours"))
            for row in rows.rows
        ],
        inflow=charts.columns(
            minutes, names=names, tone="bad", label=f"{sum(minutes)} died in the last hour"
        ),
        ages=charts.columns(ages, names=reads.AGES, tone="warn", label="open messages by age"),
    )
    part = request.headers.get("X-Console-Part")
    name = "dlq_admin/inbox_part.html" if part else "dlq_admin/inbox.html"
    return TemplateResponse(request, name, context)

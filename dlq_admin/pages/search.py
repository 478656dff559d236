"""One box for every id."""

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from dlq_admin import permissions
from dlq_admin.pages import shell
from dlq_admin.pages.guard import page
from dlq_admin.selectors.find import Found, find, parse

_STORY = ("orders.view_order", "orders.view_reservationrow")


@page(permissions.VIEW_CONSOLE)
def search(request: HttpRequest) -> HttpResponse:
    """Find dead messages by the beginning of an id; a ticket's number goes there at once."""
    query = request.GET.get("q", "")[:120].replace("\x00", "")
    kind, value = parse(query)
    if kind == "ticket" and value.isascii() and value.isdigit() and len(value) <= 18:
        return HttpResponseRedirect(reverse("dlq:ticket", args=[int(value)]))
    found = find(query) if query.strip() else Found()
    story = ""
    if found.reservation_id and request.user.has_perms(_STORY):
        story = reverse("admin:orders_story", args=[found.reservation_id])
    context = shell.context(request, title="Search", q=query, found=found, story_url=story)
    return TemplateResponse(request, "dlq_admin/search.html", context)

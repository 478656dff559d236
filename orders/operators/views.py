"""Two pages that are no list: the story of a purchase, and orders as CSV."""

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.core.handlers.asgi import ASGIRequest
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseRedirect,
    StreamingHttpResponse,
)
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from orders.export import csv_lines, csv_lines_async
from orders.models import Order
from orders.operators.acts import acts_on_order
from orders.story.tell import story_of

STORY_PERMISSIONS = ("orders.view_order", "orders.view_reservationrow")
PAYMENT_PERMISSION = "orders.view_paymentattempt"
EXPORT_PERMISSION = "orders.view_order"


@require_safe
def story(request: HttpRequest, any_id: str = "") -> HttpResponse:
    """Show the whole story of the purchase that an id belongs to; without one, a search box.

    Raises:
        PermissionDenied: the user may not see orders and reservations.
    """
    if not request.user.has_perms(STORY_PERMISSIONS):
        raise PermissionDenied("orders and reservations")
    asked = request.GET.get("id", "").strip()
    if asked:
        return HttpResponseRedirect(reverse("admin:orders_story", args=[asked[:64]]))
    found, acts = None, []
    if any_id:
        with_payments = request.user.has_perm(PAYMENT_PERMISSION)
        found = story_of(any_id, with_payments=with_payments)
        order = found and Order.objects.filter(reservation_id=found.reservation_id).first()
        acts = acts_on_order(order, request.user) if order else []
    context = {
        **admin.site.each_context(request),
        "title": "Story of a purchase",
        "any_id": any_id,
        "story": found,
        "acts": acts,
    }
    return TemplateResponse(
        request, "admin/orders/story.html", context, status=404 if any_id and not found else 200
    )


@require_safe
def orders_csv(request: HttpRequest) -> HttpResponseBase:
    """Stream orders as CSV, of one sale with `?activity=ID`.

    Raises:
        PermissionDenied: the user may not see orders.
    """
    if not request.user.has_perm(EXPORT_PERMISSION):
        raise PermissionDenied("orders")
    text = request.GET.get("activity", "")
    activity_id = int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None
    if text and activity_id is None:
        return HttpResponse("activity is a number", status=400, content_type="text/plain")
    # An asynchronous server would have to read a plain generator to its end first.
    lines = csv_lines_async if isinstance(request, ASGIRequest) else csv_lines
    name = f"orders-{activity_id}.csv" if activity_id else "orders.csv"
    return StreamingHttpResponse(
        lines(activity_id=activity_id),
        content_type="text/csv; charset=utf-8",
        headers={
            "Content-Disposition": f'attachment; filename="{name}"',
            "Cache-Control": "no-store",
        },
    )

"""Orders and reservations for operators: read only. Changes go through guarded services."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path

from evidence import Unwritable
from orders.models import Order, OrderItem, ReservationRow
from orders.operators import acts, views
from orders.operators.read_only import Evidence


class OrderItemInline(Unwritable, admin.TabularInline):  # type: ignore[type-arg]
    model = OrderItem
    extra = 0


@admin.register(Order)
class OrderAdmin(Evidence):
    list_display = [
        "order_id",
        "user_id",
        "activity_id",
        "sku_id",
        "quantity",
        "amount_cents",
        "currency",
        "status",
        "created_at",
        "expires_at",
        "story",
    ]
    list_filter = ["status"]
    # Exact and by prefix, on indexed columns only.
    search_fields = ["order_id__startswith", "reservation_id__exact", "user_id__exact"]
    search_help_text = "order id (or its beginning), reservation id, or user id"
    ordering = ["-order_id"]
    inlines = [OrderItemInline]
    change_list_template = "admin/orders/order/change_list.html"

    def get_urls(self) -> list[URLPattern]:
        """Add the story of a purchase, the orders as CSV, and what may be done to one."""
        view = self.admin_site.admin_view
        return [
            path("story/", view(views.story), name="orders_story_search"),
            path("story/<str:any_id>/", view(views.story), name="orders_story"),
            path("orders.csv", view(views.orders_csv), name="orders_csv"),
            path("<str:order_id>/cancel/", view(acts.cancel), name="orders_order_cancel"),
            path("<str:order_id>/refund/", view(acts.refund), name="orders_order_refund"),
            *super().get_urls(),
        ]

    def acts(self, row: Any, request: HttpRequest) -> list[tuple[str, str]]:
        """Cancel or refund, by the order's state and the user's permissions."""
        return acts.acts_on_order(row, request.user)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the list, with its tools only to those who may use them."""
        may_see_stories = request.user.has_perms(views.STORY_PERMISSIONS)
        return super().changelist_view(
            request, {**(extra_context or {}), "may_see_stories": may_see_stories}
        )


@admin.register(ReservationRow)
class ReservationAdmin(Evidence):
    story_field = "reservation_id"
    list_display = [
        "reservation_id",
        "user_id",
        "activity_id",
        "sku_id",
        "outcome",
        "reject_reason",
        "release_state",
        "valid_until",
        "created_at",
        "story",
    ]
    list_filter = ["outcome", "release_state", "reject_reason"]
    search_fields = ["reservation_id__startswith"]
    search_help_text = "reservation id (or its beginning)"
    ordering = ["-reservation_id"]


# Their pages, too: Django looks for an app's pages in this module.
from orders.operators import effects as _effects_admin  # noqa: E402, F401
from orders.operators import payments as _payments_admin  # noqa: E402, F401
from orders.operators import voids as _voids_admin  # noqa: E402, F401
from orders.reconcile import admin as _reconcile_admin  # noqa: E402, F401
from orders.settlement import admin as _settlement_admin  # noqa: E402, F401

"""Orders and reservations for operators: read only. Changes go through guarded services."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from orders.models import Order, OrderItem, ReservationRow


class _ReadOnly:
    """Evidence: nobody adds, changes or deletes it here."""

    show_full_result_count = False
    list_per_page = 50

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class OrderItemInline(_ReadOnly, admin.TabularInline):  # type: ignore[type-arg]
    model = OrderItem
    extra = 0


@admin.register(Order)
class OrderAdmin(_ReadOnly, admin.ModelAdmin):  # type: ignore[type-arg]
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
    ]
    list_filter = ["status"]
    # Exact and by prefix, on indexed columns only.
    search_fields = ["order_id__startswith", "reservation_id__exact", "user_id__exact"]
    search_help_text = "order id (or its beginning), reservation id, or user id"
    ordering = ["-order_id"]
    inlines = [OrderItemInline]


@admin.register(ReservationRow)
class ReservationAdmin(_ReadOnly, admin.ModelAdmin):  # type: ignore[type-arg]
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
    ]
    list_filter = ["outcome", "release_state", "reject_reason"]
    search_fields = ["reservation_id__startswith"]
    search_help_text = "reservation id (or its beginning)"
    ordering = ["-reservation_id"]


# Their pages, too: Django looks for an app's pages in this module.
from orders.reconcile import admin as _reconcile_admin  # noqa: E402, F401
from orders.settlement import admin as _settlement_admin  # noqa: E402, F401

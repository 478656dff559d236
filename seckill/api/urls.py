"""Addresses below `/api/v1/`. Ids in paths are strict: anything else is a 404."""

from django.urls import path, register_converter
from django.urls.converters import StringConverter

from seckill.api import activities, auth, orders, payments, purchase_tokens


class PositiveIdConverter:
    """A positive number that fits a bigint."""

    regex = "[1-9][0-9]{0,17}"

    def to_python(self, value: str) -> int:
        """Read the number."""
        return int(value)

    def to_url(self, value: int) -> str:
        """Write the number."""
        return str(value)


class ReservationIdConverter(StringConverter):
    """A reservation's id."""

    regex = "rsv_[0-9A-Z]{26}"


class OrderIdConverter(StringConverter):
    """An order's id."""

    regex = "ord_[0-9A-Z]{26}"


register_converter(PositiveIdConverter, "id")
register_converter(ReservationIdConverter, "rsv")
register_converter(OrderIdConverter, "ord")

urlpatterns = [
    path("auth/token", auth.TokenView.as_view()),
    path("auth/refresh", auth.RefreshView.as_view()),
    path("activities", activities.ActivityListView.as_view()),
    path("activities/<id:activity_id>", activities.ActivityView.as_view()),
    path(
        "activities/<id:activity_id>/reservations/<rsv:reservation_id>",
        activities.ReservationStatusView.as_view(),
    ),
    path(
        "activities/<id:activity_id>/skus/<id:sku_id>/reservation",
        activities.MyReservationView.as_view(),
    ),
    path(
        "activities/<id:activity_id>/skus/<id:sku_id>/purchase-token",
        purchase_tokens.PurchaseTokenView.as_view(),
    ),
    path("orders", orders.OrderListView.as_view()),
    path("orders/<ord:order_id>", orders.OrderView.as_view()),
    path("orders/<ord:order_id>/cancel", orders.CancelView.as_view()),
    path("orders/<ord:order_id>/payments", payments.PaymentView.as_view()),
    path("payments/webhooks/<slug:provider>", payments.WebhookView.as_view()),
]

"""A buyer's orders: list, show, cancel."""

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from messaging.envelope import format_instant, to_epoch_ms
from orders.cancel_order import cancel_by_user
from orders.events import OrderRecord
from orders.selectors import my_orders, order_detail
from orders.states import OrderStatus
from seckill.api.authentication import buyer_id
from seckill.api.problems import Problem
from seckill.api.schema import problems


class OrderSerializer(serializers.Serializer[object]):
    """An order."""

    order_id = serializers.CharField()
    reservation_id = serializers.CharField()
    activity_id = serializers.IntegerField()
    sku_id = serializers.IntegerField()
    quantity = serializers.IntegerField()
    amount_cents = serializers.IntegerField()
    currency = serializers.CharField()
    status = serializers.ChoiceField(choices=[status.value for status in OrderStatus])
    cancel_reason = serializers.CharField()
    version = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()
    paid_at = serializers.DateTimeField(allow_null=True)
    canceled_at = serializers.DateTimeField(allow_null=True)


class OrderPageSerializer(serializers.Serializer[object]):
    """A page of orders, newest first."""

    orders = OrderSerializer(many=True)
    next_cursor = serializers.CharField(help_text="Empty on the last page.")


class PageQuerySerializer(serializers.Serializer[object]):
    """Which page."""

    cursor = serializers.RegexField(r"^ord_[0-9A-Z]{26}\Z", required=False, default="")
    limit = serializers.IntegerField(min_value=1, max_value=100, required=False, default=20)


def order_document(order: OrderRecord) -> dict[str, Any]:
    """Return the JSON object of an order."""
    return {
        "order_id": order.order_id,
        "reservation_id": order.reservation_id,
        "activity_id": order.activity_id,
        "sku_id": order.sku_id,
        "quantity": order.quantity,
        "amount_cents": order.amount_cents,
        "currency": order.currency,
        "status": order.status,
        "cancel_reason": order.reason,
        "version": order.version,
        "created_at": instant_text(order.created_at),
        "expires_at": instant_text(order.expires_at),
        "paid_at": instant_text(order.paid_at),
        "canceled_at": instant_text(order.canceled_at),
    }


def instant_text(instant: Any) -> str | None:
    """Return an instant as the API writes it."""
    return format_instant(to_epoch_ms(instant)) if instant else None


class OrderListView(APIView):
    """The caller's orders."""

    @extend_schema(
        operation_id="orders_list",
        parameters=[
            OpenApiParameter("cursor", str, description="`next_cursor` of the page before."),
            OpenApiParameter("limit", int, description="1 to 100, default 20."),
        ],
        responses={200: OrderPageSerializer, **problems(400, 401, 503)},
    )
    def get(self, request: Request) -> Response:
        """List the caller's orders, newest first."""
        query = PageQuerySerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        page = my_orders(user_id=buyer_id(request), **query.validated_data)
        return Response(
            {
                "orders": [order_document(order) for order in page.orders],
                "next_cursor": page.next_cursor,
            }
        )


class OrderView(APIView):
    """One order of the caller."""

    @extend_schema(
        operation_id="order", responses={200: OrderSerializer, **problems(401, 404, 503)}
    )
    def get(self, request: Request, order_id: str) -> Response:
        """Show an order."""
        return Response(order_document(_mine(order_id, buyer_id(request))))


class CancelView(APIView):
    """Cancel an unpaid order."""

    @extend_schema(
        operation_id="order_cancel",
        request=None,
        responses={200: OrderSerializer, **problems(401, 404, 409, 503)},
    )
    def post(self, request: Request, order_id: str) -> Response:
        """Cancel the caller's unpaid order; its units are sold again."""
        order = cancel_by_user(order_id=order_id, user_id=buyer_id(request))
        return Response(order_document(order))


def _mine(order_id: str, user_id: str) -> OrderRecord:
    """Return an order of this buyer.

    Raises:
        Problem: NOT_FOUND, also when it is another's.
    """
    order = order_detail(order_id=order_id, user_id=user_id)
    if order is None:
        raise Problem("NOT_FOUND")
    return order

"""Paying an order, what became of it, and the provider's webhooks."""

from typing import Any, Final

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from orders.errors import OrderStateConflict
from orders.payments.attempts import start_payment
from orders.payments.port import ProviderUnavailable, WebhookRefused
from orders.payments.selectors import PaymentState, payment_state
from orders.payments.states import ATTEMPT_OPEN, AttemptStatus, RefundStatus
from orders.payments.webhooks import Receipt, receive_webhook
from orders.states import OrderStatus
from seckill.api.authentication import buyer_id
from seckill.api.orders import OrderSerializer, instant_text, order_document
from seckill.api.problems import Problem
from seckill.api.schema import problems

MAX_WEBHOOK: Final = 65_536


class AttemptSerializer(serializers.Serializer[object]):
    """One attempt to pay."""

    attempt_id = serializers.CharField()
    attempt_no = serializers.IntegerField()
    status = serializers.ChoiceField(choices=[status.value for status in AttemptStatus])
    amount_cents = serializers.IntegerField()
    currency = serializers.CharField()
    created_at = serializers.DateTimeField()
    settled_at = serializers.DateTimeField(allow_null=True)
    error_class = serializers.CharField(help_text="Why it failed or is unclear, a stable code.")
    refund_status = serializers.ChoiceField(
        choices=[status.value for status in RefundStatus], allow_null=True
    )


class PaymentStateSerializer(OrderSerializer):
    """An order with all attempts to pay it, oldest first."""

    attempts = AttemptSerializer(many=True)


class ReceiptSerializer(serializers.Serializer[object]):
    """What became of a webhook."""

    result = serializers.ChoiceField(choices=[receipt.value for receipt in Receipt])


class PaymentView(APIView):
    """Payments of one order of the caller."""

    @extend_schema(
        operation_id="order_payments",
        responses={200: PaymentStateSerializer, **problems(401, 404, 503)},
    )
    def get(self, request: Request, order_id: str) -> Response:
        """Show an order with its attempts to pay it."""
        return Response(_document(_state(order_id, buyer_id(request))))

    @extend_schema(
        operation_id="order_pay",
        request=None,
        responses={
            200: PaymentStateSerializer,
            202: PaymentStateSerializer,
            **problems(401, 404, 409, 501, 503),
        },
    )
    def post(self, request: Request, order_id: str) -> Response:
        """Pay the caller's order.

        200: paid, or refused by the provider (see the last attempt; try again). 202: the provider
        has not answered clearly yet; it is settled by itself, a repeated call charges nothing.
        """
        user_id = buyer_id(request)
        try:
            start_payment(order_id=order_id, user_id=user_id)
        except ProviderUnavailable:
            _state(order_id, user_id)  # another's order stays a 404
            raise Problem("NOT_IMPLEMENTED", detail="No payment provider is connected.") from None
        except OrderStateConflict as conflict:
            if conflict.status != OrderStatus.PAID:
                raise
        state = _state(order_id, user_id)
        is_open = any(attempt.status in ATTEMPT_OPEN for attempt in state.attempts)
        return Response(_document(state), status=202 if is_open else 200)


class WebhookView(APIView):
    """Where the payment provider tells what happened."""

    authentication_classes = []
    permission_classes = [AllowAny]

    @extend_schema(
        operation_id="payment_webhook",
        request=None,
        responses={200: ReceiptSerializer, **problems(400, 413)},
    )
    def post(self, request: Request, provider: str) -> Response:
        """Take a signed webhook: 200 also for one that is known already, 400 for a forged one."""
        if int(request.META.get("CONTENT_LENGTH") or 0) > MAX_WEBHOOK:
            raise Problem("TOO_LARGE", detail=f"A webhook may have {MAX_WEBHOOK} bytes.")
        headers = {name.lower(): value for name, value in request.headers.items()}
        try:
            receipt = receive_webhook(provider=provider, headers=headers, body=request.body)
        except WebhookRefused as refused:
            raise Problem("BAD_REQUEST", reason=refused.reason) from None
        return Response({"result": receipt.value})


def _state(order_id: str, user_id: str) -> PaymentState:
    """Return the payments of this buyer's order.

    Raises:
        Problem: NOT_FOUND, also when it is another's.
    """
    state = payment_state(order_id=order_id, user_id=user_id)
    if state is None:
        raise Problem("NOT_FOUND")
    return state


def _document(state: PaymentState) -> dict[str, Any]:
    attempts = [
        {
            "attempt_id": attempt.attempt_id,
            "attempt_no": attempt.attempt_no,
            "status": attempt.status.value,
            "amount_cents": attempt.amount_cents,
            "currency": attempt.currency,
            "created_at": instant_text(attempt.created_at),
            "settled_at": instant_text(attempt.settled_at),
            "error_class": attempt.error_class,
            "refund_status": attempt.refund_status.value if attempt.refund_status else None,
        }
        for attempt in state.attempts
    ]
    return order_document(state.order) | {"attempts": attempts}

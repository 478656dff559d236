"""Sales as buyers see them, and their reservations."""

import time
from datetime import UTC, datetime
from threading import Lock
from typing import Final

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from inventory import verbs
from inventory.errors import InventoryError
from inventory.gate import gate
from inventory.selectors import ActivityRecord, SkuRecord, activity_detail, list_activities
from orders.selectors import my_reservation, reservation_status
from seckill.api.authentication import buyer_id
from seckill.api.problems import Problem
from seckill.api.schema import problems
from seckill.api.status import StatusSerializer, status_document

_STOCK_KEPT_S: Final = 1.0
_FEW_SHARE: Final = 20  # a twentieth of the start, and at least ten, is "plenty"


class SkuSerializer(serializers.Serializer[object]):
    """A thing on sale. `stock` is coarse on purpose: the exact number is nobody's business."""

    sku_id = serializers.IntegerField()
    name = serializers.CharField()
    price_cents = serializers.IntegerField()
    currency = serializers.CharField()
    limit_per_user = serializers.IntegerField()
    stock = serializers.ChoiceField(choices=["plenty", "few", "none"])


class ActivitySerializer(serializers.Serializer[object]):
    """A sale."""

    activity_id = serializers.IntegerField()
    name = serializers.CharField()
    status = serializers.ChoiceField(choices=["WARM", "OPEN", "PAUSED", "CLOSED", "SETTLED"])
    starts_at = serializers.DateTimeField()
    ends_at = serializers.DateTimeField()
    server_time = serializers.DateTimeField(help_text="For countdowns: clients' clocks are wrong.")
    token_required = serializers.BooleanField(
        help_text="Reserving needs a purchase token: POST …/skus/{sku_id}/purchase-token."
    )
    skus = SkuSerializer(many=True)


class _CoarseStock:
    """What is left at the gate, in three words, read at most once a second and SKU."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: dict[int, tuple[float, int]] = {}

    def of(self, sku: SkuRecord) -> str:
        """Return plenty, few or none; PostgreSQL's number when the gate does not answer."""
        left = self._left(sku)
        if left <= 0:
            return "none"
        return "few" if left < max(10, sku.initial_units // _FEW_SHARE) else "plenty"

    def _left(self, sku: SkuRecord) -> int:
        now = time.monotonic()
        kept = self._kept.get(sku.sku_id)
        if kept is not None and now - kept[0] < _STOCK_KEPT_S:
            return kept[1]
        try:
            state = gate().run(verbs.gate_state(activity_id=sku.activity_id, sku_id=sku.sku_id))
            left = state.stock if state is not None else sku.available or 0
        except InventoryError:
            left = sku.available or 0
        with self._lock:
            if len(self._kept) > 10_000:
                self._kept.clear()
            self._kept[sku.sku_id] = (now, left)
        return left


_coarse_stock: Final = _CoarseStock()


def activity_document(activity: ActivityRecord) -> dict[str, object]:
    """Return a sale as the API and the pages show it."""
    return {
        "activity_id": activity.activity_id,
        "name": activity.name,
        "status": activity.status.value,
        "starts_at": activity.starts_at,
        "ends_at": activity.ends_at,
        "server_time": datetime.now(UTC),
        "token_required": activity.token_required,
        "skus": [
            {
                "sku_id": sku.sku_id,
                "name": sku.name,
                "price_cents": sku.price_cents,
                "currency": sku.currency,
                "limit_per_user": sku.limit_per_user,
                "stock": _coarse_stock.of(sku),
            }
            for sku in activity.skus
        ],
    }


class ActivityListView(APIView):
    """The sales."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    @extend_schema(operation_id="activities_list", responses=ActivitySerializer(many=True), auth=[])
    def get(self, request: Request) -> Response:
        """List the sales, the newest first, rehearsals left out."""
        documents = [activity_document(a) for a in list_activities(include_tests=False)[:100]]
        return Response(ActivitySerializer(documents, many=True).data)


class ActivityView(APIView):
    """One sale."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    @extend_schema(
        operation_id="activity", responses={200: ActivitySerializer, **problems(404, 503)}, auth=[]
    )
    def get(self, request: Request, activity_id: int) -> Response:
        """Show a sale with the server's time and coarse stock."""
        activity = activity_detail(activity_id)
        if activity is None:
            raise Problem("NOT_FOUND")
        return Response(ActivitySerializer(activity_document(activity)).data)


class ReservationStatusView(APIView):
    """One reservation of the caller."""

    @extend_schema(
        operation_id="reservation", responses={200: StatusSerializer, **problems(401, 404, 503)}
    )
    def get(self, request: Request, activity_id: int, reservation_id: str) -> Response:
        """Show a reservation's status: PostgreSQL is asked first, then the gate."""
        status = reservation_status(
            activity_id=activity_id, reservation_id=reservation_id, user_id=buyer_id(request)
        )
        if status is None:
            raise Problem("NOT_FOUND")
        return Response(status_document(status))


class MyReservationView(APIView):
    """The caller's reservation of a SKU."""

    @extend_schema(
        operation_id="my_reservation", responses={200: StatusSerializer, **problems(401, 404, 503)}
    )
    def get(self, request: Request, activity_id: int, sku_id: int) -> Response:
        """Show the newest reservation that the caller has of this SKU."""
        status = my_reservation(activity_id=activity_id, sku_id=sku_id, user_id=buyer_id(request))
        if status is None:
            raise Problem("NOT_FOUND")
        return Response(status_document(status))

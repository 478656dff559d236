"""A reservation's status as the API and the event stream show it."""

from typing import Any

from rest_framework import serializers

from inventory.contracts import PublicStatus
from messaging.envelope import format_instant, to_epoch_ms
from orders.selectors import ReservationView
from seckill.admission.answers import status_path


class StatusSerializer(serializers.Serializer[object]):
    """The status of a reservation, and of its order once there is one."""

    reservation_id = serializers.CharField()
    activity_id = serializers.IntegerField()
    sku_id = serializers.IntegerField()
    order_id = serializers.CharField()
    quantity = serializers.IntegerField()
    status = serializers.ChoiceField(choices=[status.value for status in PublicStatus])
    reason = serializers.CharField(help_text="Why it ended; empty before.")
    version = serializers.IntegerField(help_text="Grows with each change.")
    valid_until = serializers.DateTimeField(allow_null=True)
    order_status = serializers.CharField(help_text="Empty before there is an order.")
    expires_at = serializers.DateTimeField(
        allow_null=True, help_text="When an unpaid order is cancelled."
    )
    status_url = serializers.CharField()
    events_url = serializers.CharField()


def status_document(view: ReservationView) -> dict[str, Any]:
    """Return the JSON object of a status."""
    path = status_path(view.activity_id, view.reservation_id)
    return {
        "reservation_id": view.reservation_id,
        "activity_id": view.activity_id,
        "sku_id": view.sku_id,
        "order_id": view.order_id,
        "quantity": view.quantity,
        "status": view.status.value,
        "reason": view.reason,
        "version": view.version,
        "valid_until": _text(view.valid_until),
        "order_status": view.order_status,
        "expires_at": _text(view.expires_at),
        "status_url": path,
        "events_url": f"{path}/events",
    }


def _text(instant: Any) -> str | None:
    return format_instant(to_epoch_ms(instant)) if instant else None

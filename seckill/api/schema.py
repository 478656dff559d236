"""What drf-spectacular cannot see by itself: hot endpoint, status stream, problems, tokens."""

from typing import Any, Final

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.utils import OpenApiResponse
from rest_framework import serializers

from seckill.admission.problems import CONTENT_TYPE, PROBLEMS

HOT_PATH: Final = "/api/v1/activities/{activity_id}/skus/{sku_id}/reservations"
EVENTS_PATH: Final = "/api/v1/activities/{activity_id}/reservations/{reservation_id}/events"

_WAITS: Final = {kind.status for kind in PROBLEMS.values() if kind.retry_after_s is not None}
_RETRY_AFTER: Final = {
    "description": "Seconds to wait before the request is repeated.",
    "schema": {"type": "integer", "minimum": 1},
}


class ProblemSerializer(serializers.Serializer[object]):
    """RFC 9457 problem details. Decide by `code`."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    code = serializers.ChoiceField(choices=sorted(PROBLEMS))
    detail = serializers.CharField()
    reservation_id = serializers.CharField(
        required=False, help_text="Of ALREADY_RESERVED and RESERVATION_ENDED."
    )
    order_id = serializers.CharField(required=False, help_text="Of ALREADY_RESERVED.")
    status_url = serializers.CharField(
        required=False, help_text="Of ALREADY_RESERVED and RESERVATION_ENDED: a path."
    )
    events_url = serializers.CharField(required=False, help_text="Of ALREADY_RESERVED: a path.")
    reason = serializers.CharField(
        required=False, help_text="Of RESERVATION_ENDED: why; of a webhook refused."
    )
    order_status = serializers.CharField(required=False, help_text="Of ORDER_STATE_CONFLICT.")
    errors = serializers.JSONField(  # type: ignore[assignment]
        required=False, help_text="Of BAD_REQUEST: by field."
    )


def problems(*statuses: int) -> dict[tuple[int, str], OpenApiResponse]:
    """Return the response map of problems for `extend_schema`."""
    return {
        (status, CONTENT_TYPE): OpenApiResponse(
            response=ProblemSerializer,
            description=", ".join(c for c, kind in PROBLEMS.items() if kind.status == status),
        )
        for status in statuses
    }


class BuyerTokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """The bearer token."""

    target_class = "seckill.api.authentication.BuyerTokenAuthentication"
    name = "buyerToken"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        """Describe the scheme."""
        return {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}


def add_async_endpoints(
    result: dict[str, Any], generator: Any, request: Any, public: bool
) -> dict[str, Any]:
    """Postprocessing hook: describe the endpoints that are served in front of Django."""
    components = result.setdefault("components", {}).setdefault("schemas", {})
    components["ReservationRequest"] = {
        "type": "object",
        "required": ["quantity"],
        "properties": {"quantity": {"type": "integer", "minimum": 1, "maximum": 2**31 - 1}},
    }
    components["Accepted"] = {
        "type": "object",
        "required": [
            "reservation_id",
            "order_id",
            "status",
            "status_url",
            "events_url",
            "valid_until",
        ],
        "properties": {
            "reservation_id": {"type": "string"},
            "order_id": {"type": "string"},
            "status": {
                "type": "string",
                "enum": ["QUEUED", "PENDING", "ORDERED"],
                "description": "QUEUED: the broker has it. PENDING: it is being passed on.",
            },
            "status_url": {"type": "string"},
            "events_url": {"type": "string"},
            "valid_until": {"type": "string", "format": "date-time"},
        },
    }
    result["paths"][HOT_PATH] = {"post": _hot_operation()}
    result["paths"][EVENTS_PATH] = {"get": _events_operation()}
    result["paths"] = dict(sorted(result["paths"].items()))
    _describe_retry_after(result["paths"])
    return result


def _describe_retry_after(paths: dict[str, Any]) -> None:
    """Name the header of every answer that tells when to come again."""
    for operations in paths.values():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                if int(status) in _WAITS:
                    response["headers"] = {"Retry-After": _RETRY_AFTER}


def _hot_operation() -> dict[str, Any]:
    return {
        "operationId": "reserve",
        "summary": "Reserve units of a SKU",
        "description": (
            "The hot endpoint. 202 means that units are kept for the caller until `valid_until` "
            "while the order is made; follow `status_url` or `events_url`. After a 503 or a lost "
            "answer repeat the request with the same Idempotency-Key: it names the same "
            "reservation. SOLD_OUT is not final before the sale's end: units may come back."
        ),
        "tags": ["activities"],
        "security": [{"buyerToken": []}],
        "parameters": [
            _path_parameter("activity_id"),
            _path_parameter("sku_id"),
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "schema": {"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,64}$"},
                "description": "Names the request; the same key answers the same reservation.",
            },
            {
                "name": "Purchase-Token",
                "in": "header",
                "required": False,
                "schema": {"type": "string"},
                "description": (
                    "Where the sale has `token_required`. It takes the place of the "
                    "Idempotency-Key: one token names one request."
                ),
            },
            {
                "name": "traceparent",
                "in": "header",
                "required": False,
                "schema": {"type": "string"},
                "description": "W3C trace context; made when absent or ill-formed.",
            },
        ],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": {"$ref": "#/components/schemas/ReservationRequest"}}
            },
        },
        "responses": {
            "202": {
                "description": "Reserved.",
                "content": {
                    "application/json": {"schema": {"$ref": "#/components/schemas/Accepted"}}
                },
            },
            **{
                str(s): _problem(s) for s in (400, 401, 403, 404, 405, 409, 413, 415, 422, 429, 503)
            },
        },
    }


def _events_operation() -> dict[str, Any]:
    return {
        "operationId": "reservation_events",
        "summary": "Follow a reservation (server-sent events)",
        "description": (
            "The first event is a snapshot, then one for each change. REJECTED, EXPIRED, CANCELED "
            "end the stream, and 15 minutes do: connect again. Comments keep it open."
        ),
        "tags": ["activities"],
        "security": [{"buyerToken": []}],
        "parameters": [
            _path_parameter("activity_id"),
            {
                "name": "reservation_id",
                "in": "path",
                "required": True,
                "schema": {"type": "string"},
            },
        ],
        "responses": {
            "200": {
                "description": "Events named `status`; data is the reservation's status object.",
                "content": {"text/event-stream": {"schema": {"type": "string"}}},
            },
            **{str(status): _problem(status) for status in (401, 404, 405, 503)},
        },
    }


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "integer"}}


def _problem(status: int) -> dict[str, Any]:
    codes = ", ".join(code for code, kind in PROBLEMS.items() if kind.status == status)
    return {
        "description": codes,
        "content": {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }

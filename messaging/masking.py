"""What a person may see of a body: its shape and ids, no personal data (pure)."""

from typing import Any, Final

import msgspec

# Values that stay readable; everything else is replaced by its length.
_READABLE: Final = frozenset(
    {
        "schema_version", "event_type", "message_id", "message_key", "request_id", "reservation_id",
        "order_id", "event_id", "aggregate_id", "aggregate_version", "activity_id", "sku_id",
        "quantity", "status", "reason", "restock", "created_at", "occurred_at", "expires_at",
        "deliver_at", "reservation_created_at", "reservation_valid_until", "retry_count",
        "replay_count", "producer", "source", "traceparent", "trace_id", "span_id",
    }
)  # fmt: skip
_SHOWN: Final = 4_000


def masked_body(body: bytes) -> str:
    """Return a body as indented JSON with every value masked that is not known to be harmless."""
    try:
        value = msgspec.json.decode(body)
        text = msgspec.json.format(msgspec.json.encode(masked(value)), indent=2).decode()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError):
        return f"{len(body)} bytes that are no JSON"
    return text[:_SHOWN]


def masked(value: Any, name: str = "") -> Any:
    """Return a value of a body, by its field's name, masked unless it is known to be harmless."""
    if isinstance(value, dict):
        return {key: masked(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [masked(item, name) for item in value]
    if name in _READABLE or value is None or isinstance(value, bool):
        return value
    return f"*** ({len(str(value))} characters)"

"""What orders writes into the outbox: each row is built here, in the transaction that justifies it.

Every message gets an `evt_` id of its own, kept in its row, so that the relay's resends are the
same bytes under the same id.
"""

import random
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from ulid import ULID

from messaging.envelope import PRODUCER, SCHEMA_VERSION, format_instant, to_epoch_ms, trace_of
from messaging.outbox import LANE_COMPENSATE, LANE_EVENTS, LANE_TIMEOUTS, OutboxMessage
from messaging.topology import (
    INVENTORY_COMPENSATE,
    ORDER_EVENT,
    ORDER_TIMEOUT,
    TAG_CANCEL_IF_UNPAID,
    TAG_RELEASE_RESERVATION,
)
from orders.contracts import (
    CANCEL_EVENT_TYPE,
    RELEASE_EVENT_TYPE,
    CancelIfUnpaid,
    OrderEvent,
    OrderPayload,
    ReleaseReservation,
    encode,
)

SOURCE: Final = "orders"
# Spread over 10 s: a sale's orders expire together, their cancels must not arrive together.
CANCEL_JITTER_MS: Final = (1_000, 10_000)
# A delayed message takes a send of its own, the dearest part of an order for the broker: it is sent
# after the rush, but in the first quarter of the time it has.
HOLD_BACK_MAX_MS: Final = 60_000
# Orders without a traceparent do not exist; this one keeps a hand-made row decodable.
NO_TRACE: Final = f"00-{'0' * 31}1-{'0' * 15}1-00"


@dataclass(frozen=True, kw_only=True, slots=True)
class OrderRecord:
    """An order's row as its events tell it. `reason`: why cancelled, or why rejected."""

    order_id: str
    reservation_id: str
    request_id: str
    activity_id: int
    sku_id: int
    user_id: str
    quantity: int
    amount_cents: int
    currency: str
    status: str
    version: int
    reason: str
    created_at: datetime
    expires_at: datetime | None
    paid_at: datetime | None
    canceled_at: datetime | None
    payment_id: str
    traceparent: str


# The SELECT or RETURNING list from which `order_record` reads.
ORDER_COLUMNS: Final = (
    "o.order_id, o.reservation_id, o.request_id, o.activity_id, o.sku_id, o.user_id, o.quantity,"
    " o.amount_cents, o.currency, o.status, o.aggregate_version, o.cancel_reason, o.created_at,"
    " o.expires_at, o.paid_at, o.canceled_at, o.payment_id, o.traceparent"
)
_FIELDS: Final = tuple(OrderRecord.__dataclass_fields__)


def order_record(row: tuple[Any, ...]) -> OrderRecord:
    """Read a row of `ORDER_COLUMNS`."""
    return OrderRecord(**dict(zip(_FIELDS, row, strict=True)))


@lru_cache(maxsize=64)  # a batch's messages share their instants
def _text(instant: datetime | None) -> str:
    return format_instant(to_epoch_ms(instant)) if instant else ""


def order_event(event_type: str, order: OrderRecord, *, now: datetime) -> OutboxMessage:
    """Build a fact about an order (lane 1), with the whole query row as payload."""
    event_id = f"evt_{ULID()}"
    occurred_at = _text(now)
    body = encode(
        OrderEvent(
            schema_version=SCHEMA_VERSION,
            event_type=event_type,
            event_id=event_id,
            message_id=event_id,
            message_key=order.order_id,
            aggregate_id=order.order_id,
            aggregate_version=order.version,
            occurred_at=occurred_at,
            source=SOURCE,
            request_id=order.request_id,
            reservation_id=order.reservation_id,
            order_id=order.order_id,
            activity_id=order.activity_id,
            sku_id=order.sku_id,
            user_id=order.user_id,
            quantity=order.quantity,
            created_at=occurred_at,
            retry_count=0,
            replay_count=0,
            producer=PRODUCER,
            trace=trace_of(order.traceparent or NO_TRACE),
            payload=OrderPayload(
                order_id=order.order_id,
                reservation_id=order.reservation_id,
                request_id=order.request_id,
                activity_id=order.activity_id,
                sku_id=order.sku_id,
                user_id=order.user_id,
                quantity=order.quantity,
                amount_cents=order.amount_cents,
                currency=order.currency,
                status=order.status,
                reason=order.reason,
                created_at=_text(order.created_at),
                expires_at=_text(order.expires_at),
                paid_at=_text(order.paid_at),
                canceled_at=_text(order.canceled_at),
                payment_id=order.payment_id,
            ),
        )
    )
    return OutboxMessage(
        topic=ORDER_EVENT,
        tag=event_type,
        event_id=event_id,
        keys=_keys(order),
        body=body,
        lane=LANE_EVENTS,
        properties=_properties(order),
    )


def cancel_trigger(order: OrderRecord, *, now: datetime) -> OutboxMessage:
    """Build the delayed "you may look now" (lane 2), 1 to 10 s after the order's expiry."""
    assert order.expires_at is not None  # noqa: S101 - only unpaid orders get a trigger
    event_id = f"evt_{ULID()}"
    deliver_at_ms = to_epoch_ms(order.expires_at) + random.randint(*CANCEL_JITTER_MS)  # noqa: S311
    body = encode(
        CancelIfUnpaid(
            schema_version=SCHEMA_VERSION,
            event_type=CANCEL_EVENT_TYPE,
            message_id=event_id,
            message_key=order.order_id,
            request_id=order.request_id,
            reservation_id=order.reservation_id,
            order_id=order.order_id,
            activity_id=order.activity_id,
            sku_id=order.sku_id,
            user_id=order.user_id,
            quantity=order.quantity,
            deliver_at=format_instant(deliver_at_ms),
            created_at=_text(now),
            retry_count=0,
            replay_count=0,
            producer=PRODUCER,
            trace=trace_of(order.traceparent or NO_TRACE),
        )
    )
    return OutboxMessage(
        topic=ORDER_TIMEOUT,
        tag=TAG_CANCEL_IF_UNPAID,
        event_id=event_id,
        keys=_keys(order),
        body=body,
        lane=LANE_TIMEOUTS,
        deliver_at_ms=deliver_at_ms,
        hold_back_ms=min(HOLD_BACK_MAX_MS, max(0, deliver_at_ms - to_epoch_ms(now)) // 4),
        properties=_properties(order),
    )


def release_command(order: OrderRecord, *, restock: bool, now: datetime) -> OutboxMessage:
    """Build the command that gives a reservation's units back to the gate (lane 0)."""
    event_id = f"evt_{ULID()}"
    body = encode(
        ReleaseReservation(
            schema_version=SCHEMA_VERSION,
            event_type=RELEASE_EVENT_TYPE,
            message_id=event_id,
            message_key=order.reservation_id,
            request_id=order.request_id,
            reservation_id=order.reservation_id,
            order_id=order.order_id,
            activity_id=order.activity_id,
            sku_id=order.sku_id,
            user_id=order.user_id,
            quantity=order.quantity,
            restock=restock,
            reason=order.reason,
            created_at=_text(now),
            retry_count=0,
            replay_count=0,
            producer=PRODUCER,
            trace=trace_of(order.traceparent or NO_TRACE),
        )
    )
    return OutboxMessage(
        topic=INVENTORY_COMPENSATE,
        tag=TAG_RELEASE_RESERVATION,
        event_id=event_id,
        keys=_keys(order),
        body=body,
        lane=LANE_COMPENSATE,
        properties=_properties(order),
    )


def _keys(order: OrderRecord) -> tuple[str, str, str]:
    return (order.reservation_id, order.order_id, order.request_id)


def _properties(order: OrderRecord) -> dict[str, str]:
    return {"traceparent": order.traceparent or NO_TRACE}

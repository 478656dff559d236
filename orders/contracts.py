"""Messages of the order domain (pure): imperative commands in, facts in the past tense out.

Wire contracts live longer than code: each has a golden file per schema version in tests/golden.
"""

from typing import Final

import msgspec

from inventory.contracts import Reservation
from messaging.envelope import (
    PRODUCER,
    SCHEMA_VERSION,
    Counter,
    EventId,
    Instant,
    OrderId,
    PositiveId,
    Quantity,
    RequestId,
    ReservationId,
    StrictDecoder,
    Trace,
    UserId,
    format_instant,
    trace_of,
)

CREATE_EVENT_TYPE: Final = "ORDER_CREATE_REQUESTED"
CANCEL_EVENT_TYPE: Final = "CANCEL_ORDER_IF_UNPAID"
RELEASE_EVENT_TYPE: Final = "RELEASE_RESERVATION"
ORDER_CREATED: Final = "ORDER_CREATED"
ORDER_PAID: Final = "ORDER_PAID"
ORDER_CANCELED: Final = "ORDER_CANCELED"
ORDER_REJECTED: Final = "ORDER_REJECTED"
ORDER_REFUNDED: Final = "ORDER_REFUNDED"
ORDER_EVENT_TYPES: Final = frozenset(
    {ORDER_CREATED, ORDER_PAID, ORDER_CANCELED, ORDER_REJECTED, ORDER_REFUNDED}
)


class CreateOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Reservation → order: the body that admission and scanner send, byte for byte the same."""

    schema_version: int
    event_type: str
    message_id: EventId
    message_key: ReservationId
    request_id: RequestId
    reservation_id: ReservationId
    order_id: OrderId
    activity_id: PositiveId
    sku_id: PositiveId
    user_id: UserId
    quantity: Quantity
    reservation_created_at: Instant
    reservation_valid_until: Instant
    created_at: Instant
    retry_count: Counter
    replay_count: Counter
    producer: str
    trace: Trace


class CancelIfUnpaid(msgspec.Struct, frozen=True, kw_only=True):
    """A trigger ("you may look now"). The database decides whether anything is cancelled."""

    schema_version: int
    event_type: str
    message_id: EventId
    message_key: OrderId
    request_id: RequestId
    reservation_id: ReservationId
    order_id: OrderId
    activity_id: PositiveId
    sku_id: PositiveId
    user_id: UserId
    quantity: Quantity
    deliver_at: Instant
    created_at: Instant
    retry_count: Counter
    replay_count: Counter
    producer: str
    trace: Trace


class ReleaseReservation(msgspec.Struct, frozen=True, kw_only=True):
    """Units of a reservation must go back to the gate; user and quantity come from PostgreSQL."""

    schema_version: int
    event_type: str
    message_id: EventId
    message_key: ReservationId
    request_id: RequestId
    reservation_id: ReservationId
    order_id: OrderId
    activity_id: PositiveId
    sku_id: PositiveId
    user_id: UserId
    quantity: Quantity
    restock: bool
    reason: str
    created_at: Instant
    retry_count: Counter
    replay_count: Counter
    producer: str
    trace: Trace


class OrderPayload(msgspec.Struct, frozen=True, kw_only=True):
    """The whole query row, so that a skipped version loses nothing. Empty text where not set."""

    order_id: OrderId
    reservation_id: ReservationId
    request_id: RequestId
    activity_id: PositiveId
    sku_id: PositiveId
    user_id: UserId
    quantity: Quantity
    amount_cents: Counter
    currency: str
    status: str
    reason: str
    created_at: str
    expires_at: str
    paid_at: str
    canceled_at: str
    payment_id: str


class OrderEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something happened to an order (or, for ORDER_REJECTED, to its reservation)."""

    schema_version: int
    event_type: str
    event_id: EventId
    message_id: EventId
    message_key: OrderId
    aggregate_id: OrderId
    aggregate_version: Counter
    occurred_at: Instant
    source: str
    request_id: RequestId
    reservation_id: ReservationId
    order_id: OrderId
    activity_id: PositiveId
    sku_id: PositiveId
    user_id: UserId
    quantity: Quantity
    created_at: Instant
    retry_count: Counter
    replay_count: Counter
    producer: str
    trace: Trace
    payload: OrderPayload


create_order_decoder: Final = StrictDecoder(CreateOrder, event_types=frozenset({CREATE_EVENT_TYPE}))
cancel_decoder: Final = StrictDecoder(CancelIfUnpaid, event_types=frozenset({CANCEL_EVENT_TYPE}))
release_decoder: Final = StrictDecoder(
    ReleaseReservation, event_types=frozenset({RELEASE_EVENT_TYPE})
)
order_event_decoder: Final = StrictDecoder(OrderEvent, event_types=ORDER_EVENT_TYPES)

_encoder: Final = msgspec.json.Encoder()


def create_order_body(reservation: Reservation) -> bytes:
    """Build the body from the stored reservation: the one builder, for admission and scanner.

    Everything comes from the hash, so that a resend is the same bytes as the first send.
    """
    created_at = format_instant(reservation.created_at_ms)
    return _encoder.encode(
        CreateOrder(
            schema_version=SCHEMA_VERSION,
            event_type=CREATE_EVENT_TYPE,
            message_id=reservation.message_id,
            message_key=reservation.reservation_id,
            request_id=reservation.request_id,
            reservation_id=reservation.reservation_id,
            order_id=reservation.order_id,
            activity_id=reservation.activity_id,
            sku_id=reservation.sku_id,
            user_id=reservation.user_id,
            quantity=reservation.quantity,
            reservation_created_at=created_at,
            reservation_valid_until=format_instant(reservation.valid_until_ms),
            created_at=created_at,
            retry_count=0,
            replay_count=0,
            producer=PRODUCER,
            trace=trace_of(reservation.traceparent),
        )
    )


def encode(message: CreateOrder | CancelIfUnpaid | ReleaseReservation | OrderEvent) -> bytes:
    """Serialise a message; the order of fields is the order of the class."""
    return _encoder.encode(message)

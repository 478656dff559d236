"""Small pure parts of orders."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from inventory.contracts import PublicStatus, Reservation
from messaging.envelope import to_epoch_ms
from orders.contracts import (
    CREATE_EVENT_TYPE,
    ORDER_CREATED,
    cancel_decoder,
    create_order_decoder,
    order_event_decoder,
    release_decoder,
)
from orders.events import (
    CANCEL_JITTER_MS,
    OrderRecord,
    cancel_trigger,
    order_event,
    release_command,
)
from orders.scan.pending import MAX_DELAY_MS, delay_ms
from orders.scan.resend import create_order_message
from orders.states import OrderStatus, RejectReason
from orders.status import of_order, of_reject

NOW = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
ULID = "01J00000000000000000000000"
ORDER = OrderRecord(
    order_id=f"ord_{ULID}",
    reservation_id=f"rsv_{ULID}",
    request_id=f"req_{ULID}",
    activity_id=1,
    sku_id=2,
    user_id="ann",
    quantity=3,
    amount_cents=300,
    currency="EUR",
    status="CREATED",
    version=1,
    reason="",
    created_at=NOW,
    expires_at=NOW + timedelta(minutes=15),
    paid_at=None,
    canceled_at=None,
    payment_id="",
    traceparent=f"00-{'a' * 32}-{'b' * 16}-01",
)


def test_resends_are_the_same_bytes_and_only_the_counter_differs():
    reservation = Reservation(
        activity_id=1,
        sku_id=2,
        reservation_id=f"rsv_{ULID}",
        request_id=f"req_{ULID}",
        order_id=f"ord_{ULID}",
        message_id=f"evt_{ULID}",
        user_id="ann",
        quantity=1,
        status="RESERVED",
        mq_status="MQ_PENDING",
        created_at_ms=to_epoch_ms(NOW),
        valid_until_ms=to_epoch_ms(NOW) + 300_000,
        traceparent=ORDER.traceparent,
    )
    first, second = (create_order_message(reservation, send_attempt=n) for n in (1, 2))
    assert first.body == second.body
    assert (first.message_id, first.keys, first.tag) == (second.message_id, second.keys, second.tag)
    assert (first.properties["send_attempt"], second.properties["send_attempt"]) == ("1", "2")
    decoded = create_order_decoder.decode(first.body)
    assert (decoded.event_type, decoded.retry_count) == (CREATE_EVENT_TYPE, 0)
    assert decoded.reservation_valid_until == "2026-01-02T03:09:05.678Z"


def test_what_orders_writes_can_be_read_by_its_own_strict_decoders():
    event = order_event(ORDER_CREATED, ORDER, now=NOW)
    trigger = cancel_trigger(ORDER, now=NOW)
    release = release_command(ORDER, restock=False, now=NOW)

    decoded = order_event_decoder.decode(event.body)
    assert (decoded.event_id, decoded.payload.amount_cents) == (event.event_id, 300)
    assert decoded.payload.expires_at == "2026-01-02T03:19:05.678Z"
    assert cancel_decoder.decode(trigger.body).message_id == trigger.event_id
    assert release_decoder.decode(release.body).restock is False
    assert [m.lane for m in (release, event, trigger)] == [0, 1, 2]
    assert len({m.event_id for m in (release, event, trigger)}) == 3
    assert event.keys == (ORDER.reservation_id, ORDER.order_id, ORDER.request_id)


def test_the_trigger_comes_one_to_ten_seconds_after_expiry_and_says_so():
    expires_ms = to_epoch_ms(ORDER.expires_at)
    low, high = CANCEL_JITTER_MS
    seen = {cancel_trigger(ORDER, now=NOW).deliver_at_ms - expires_ms for _ in range(200)}
    assert low <= min(seen)
    assert max(seen) <= high
    assert len(seen) > 100
    trigger = cancel_trigger(ORDER, now=NOW)
    said = msgspec.json.decode(trigger.body)["deliver_at"]
    assert to_epoch_ms(datetime.fromisoformat(said)) == trigger.deliver_at_ms


def test_an_order_without_a_trace_still_makes_readable_messages():
    from dataclasses import replace

    event = order_event(ORDER_CREATED, replace(ORDER, traceparent=""), now=NOW)
    assert order_event_decoder.decode(event.body).trace.trace_id == "0" * 31 + "1"


@pytest.mark.parametrize(("attempt", "base"), [(1, 1_000), (2, 2_000), (4, 8_000), (5, 10_000)])
def test_the_resend_delay_doubles_to_ten_seconds(attempt, base):
    seen = [delay_ms(attempt) for _ in range(100)]
    assert base * 0.8 <= min(seen)
    assert max(seen) <= base * 1.2
    assert delay_ms(10_000) <= MAX_DELAY_MS * 1.2


@pytest.mark.parametrize("status", list(OrderStatus))
def test_every_order_status_has_a_public_one(status):
    ended = status in {OrderStatus.CANCELED, OrderStatus.REFUNDED}
    assert of_order(status) is (PublicStatus.CANCELED if ended else PublicStatus.ORDERED)


@pytest.mark.parametrize("reason", list(RejectReason))
def test_only_what_came_too_late_is_expired(reason):
    expired = reason is RejectReason.RESERVATION_EXPIRED
    assert of_reject(reason) is (PublicStatus.EXPIRED if expired else PublicStatus.REJECTED)

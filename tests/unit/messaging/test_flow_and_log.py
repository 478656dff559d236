"""Lag and drain as a member sees them, and the log line of a delivery."""

from dataclasses import replace

import pytest
import structlog

from messaging.attempt import Settled
from messaging.broker.base import ReceivedMessage
from messaging.consume_log import fields, log_settled
from messaging.disposition import DONE, Decision, quarantine, rejected
from messaging.flow_meter import FlowMeter
from messaging.pulse import LoopState, Pulse

MESSAGE = ReceivedMessage(
    topic="ORDER_CREATE_V1",
    message_id="evt_1",
    body=b'{"secret": "payload"}',
    tag="CREATE_ORDER",
    keys=("rsv_1", "ord_1", "req_1"),
    properties={"schema_version": "1", "traceparent": f"00-{'a' * 32}-{'b' * 16}-01"},
    delivery_attempt=1,
    receipt_handle="h",
    invisible_until=0.0,
    stored_at_ms=1_000_000,
)


class Clock:
    def __init__(self) -> None:
        self.s = 100.0
        self.ms = 1_000_000

    def pass_s(self, seconds: float) -> None:
        self.s += seconds
        self.ms += round(seconds * 1000)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def meter(clock: Clock) -> FlowMeter:
    return FlowMeter(quiet_s=6, monotonic=lambda: clock.s, now_ms=lambda: clock.ms)


def test_lag_is_the_age_of_the_oldest_first_delivery(meter: FlowMeter, clock: Clock) -> None:
    clock.pass_s(2.5)
    redelivered = replace(MESSAGE, delivery_attempt=2, stored_at_ms=0)

    meter.took([redelivered, MESSAGE, replace(MESSAGE, stored_at_ms=1_002_000)])

    assert meter.lag_s == 2.5


def test_an_empty_queue_has_no_lag_and_silence_makes_it_grow(
    meter: FlowMeter, clock: Clock
) -> None:
    meter.idle()
    clock.pass_s(6)
    assert meter.lag_s == 0.0
    clock.pass_s(4)
    assert meter.lag_s == 4.0


def test_drain_is_what_was_settled_in_the_last_five_seconds(meter: FlowMeter, clock: Clock) -> None:
    meter.settled(100)
    clock.pass_s(3)
    meter.settled(50)
    assert meter.drain_per_s == 30.0
    clock.pass_s(3)
    assert meter.drain_per_s == 10.0


CONSUMER_FIELDS = {
    "message_id", "reservation_id", "order_id", "consumer_group", "topic", "queue", "offset",
    "delivery_attempt", "schema_version", "decision", "inbox_result", "order_result",
    "tx_latency_ms", "ack_result", "trace_id",
}  # fmt: skip


@pytest.mark.parametrize(
    ("decision", "ack", "inbox"),
    [
        (DONE, "OK", "NEW"),
        (rejected("NO_FINAL_STOCK"), "OK", "NEW"),
        (quarantine("INVALID_JSON"), "FAILED", "NONE"),
    ],
)
def test_a_line_has_every_field_and_no_payload(decision: Decision, ack: str, inbox: str) -> None:
    settled = Settled(message=MESSAGE, decision=decision)
    with structlog.testing.capture_logs() as lines:
        log_settled(
            [settled],
            group="G",
            tx_latency_ms=12.34,
            failed_acks=frozenset({"evt_1"} if ack == "FAILED" else ()),
        )
    if decision is DONE:
        assert lines == []  # DEBUG: thousands a second
        line = fields(settled, group="G", tx_latency_ms=12.34, ack_result="OK")
    else:
        [line] = lines
        assert line.pop("event") == "message_consumed"
        line.pop("log_level")

    assert line.keys() == CONSUMER_FIELDS
    assert line["reservation_id"] == "rsv_1"
    assert line["order_id"] == "ord_1"
    assert line["ack_result"] == ack
    assert line["inbox_result"] == inbox
    assert line["order_result"] == decision.reason
    assert line["trace_id"] == "a" * 32
    assert line["tx_latency_ms"] == 12.3
    assert "payload" not in repr(line)


def test_a_pulse_names_the_part_that_stalls_and_forgives_a_stopped_process() -> None:
    pulse = Pulse()
    pulse.touch()
    pulse.touch("poller-0")
    since = pulse._parts["loop"]

    assert pulse.stalled(since + 60)[0] == "loop"
    assert pulse.stalled(since + 60)[1] == pytest.approx(60)
    pulse.end("loop")
    assert pulse.stalled(since + 60)[0] == "poller-0"
    pulse.forgive()
    assert pulse.stalled(since)[1] <= 0
    pulse.report(LoopState.WAITING, lag_s=1.0)
    pulse.finish()
    assert pulse.snapshot() == (LoopState.STOPPED, {"lag_s": 1.0})
    assert pulse.stalled(since + 60) == ("", 0.0)

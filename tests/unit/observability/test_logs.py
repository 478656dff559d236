"""Log lines carry the sources' fields, never a payload, and buyers' ids only as wished."""

import json
import logging
from dataclasses import replace

import pytest
import structlog

from messaging import consume_log, publish_log
from messaging.attempt import Settled
from messaging.broker.base import (
    FailureClass,
    OutgoingMessage,
    ReceivedMessage,
    SendOutcome,
    SendResult,
)
from messaging.disposition import DONE
from seckill import logs

PRODUCER = {
    *("message_id", "reservation_id", "request_id", "order_id", "activity_id", "sku_id"),
    *("user_id", "topic", "tag", "send_attempt", "send_outcome", "broker_message_id"),
    *("send_latency_ms", "error_class", "trace_id"),
}
CONSUMER = {
    *("message_id", "reservation_id", "order_id", "consumer_group", "topic", "queue", "offset"),
    *("delivery_attempt", "schema_version", "decision", "inbox_result", "order_result"),
    *("tx_latency_ms", "ack_result", "trace_id"),
}
ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
MESSAGE = OutgoingMessage(
    topic="ORDER_CREATE_V1",
    message_id=f"evt_{ULID}",
    body=json.dumps(
        {
            "reservation_id": f"rsv_{ULID}",
            "activity_id": 7,
            "sku_id": 8,
            "user_id": "alice@example.com",
            "address": "secret street",
        }
    ).encode(),
    tag="CREATE_ORDER",
    keys=(f"rsv_{ULID}", f"ord_{ULID}", f"req_{ULID}"),
    properties={"send_attempt": "2", "traceparent": f"00-{'a' * 32}-{'b' * 16}-00"},
)
REFUSED = SendResult(
    outcome=SendOutcome.DEFINITE_FAILURE,
    failure=FailureClass.CONFIGURATION,
    code="40402",
    detail="no such topic",
)


def test_a_producers_line_has_all_its_fields() -> None:
    fields = publish_log.fields(MESSAGE, REFUSED, seconds=0.0123)

    assert fields.keys() >= PRODUCER
    assert (fields["activity_id"], fields["sku_id"], fields["user_id"]) == (
        7,
        8,
        "alice@example.com",
    )
    assert fields["send_attempt"] == 2
    assert fields["send_outcome"] == "DEFINITE_FAILURE"
    assert fields["error_class"] == "CONFIGURATION"
    assert fields["send_latency_ms"] == 12.3
    assert fields["broker_message_id"] is None  # nothing was stored
    assert fields["trace_id"] == "a" * 32
    assert "secret street" not in str(fields)


def test_the_brokers_id_is_known_when_it_confirmed() -> None:
    confirmed = SendResult(outcome=SendOutcome.CONFIRMED, code="OK")
    fields = publish_log.fields(MESSAGE, confirmed, seconds=0.001)
    assert fields["broker_message_id"] == MESSAGE.message_id


def test_a_consumers_line_has_all_its_fields() -> None:
    message = ReceivedMessage(
        topic="ORDER_CREATE_V1",
        message_id=f"evt_{ULID}",
        body=MESSAGE.body,
        tag="CREATE_ORDER",
        keys=MESSAGE.keys,
        properties=MESSAGE.properties,
        delivery_attempt=1,
        receipt_handle="h",
        invisible_until=0.0,
        stored_at_ms=1,
    )
    fields = consume_log.fields(
        Settled(message=message, decision=DONE), group="G", tx_latency_ms=1.0, ack_result="OK"
    )
    assert fields.keys() >= CONSUMER
    assert "alice" not in str(fields)


@pytest.mark.parametrize(
    ("outcome", "level"),
    [(SendOutcome.UNKNOWN, "warning"), (SendOutcome.DEFINITE_FAILURE, "error")],
)
def test_what_is_not_confirmed_gets_a_line_for_each_message(
    outcome: SendOutcome, level: str
) -> None:
    with structlog.testing.capture_logs() as lines:
        publish_log.record_send(
            [MESSAGE, MESSAGE], SendResult(outcome=outcome, code="X"), seconds=0.04
        )
    assert [line["log_level"] for line in lines] == [level, level]
    assert all(line["event"] == "message_not_sent" for line in lines)
    assert all(line.keys() >= PRODUCER for line in lines)


def test_a_large_batch_that_is_not_confirmed_names_the_others_in_one_line() -> None:
    batch = [replace(MESSAGE, message_id=f"evt_{number}") for number in range(64)]
    with structlog.testing.capture_logs() as lines:
        publish_log.record_send(
            batch, SendResult(outcome=SendOutcome.UNKNOWN, code="X"), seconds=0.04
        )
    *each, others = lines
    named = [line["message_id"] for line in each] + others["message_ids"]
    assert named == [message.message_id for message in batch]
    assert (len(lines), others["event"], others["code"]) == (5, "messages_not_sent", "X")


def test_what_is_confirmed_costs_no_line(caplog: pytest.LogCaptureFixture) -> None:
    confirmed = SendResult(outcome=SendOutcome.CONFIRMED, code="OK")
    with caplog.at_level(logging.INFO):
        publish_log.record_send([MESSAGE], confirmed, seconds=0.001)
    assert caplog.records == []


def test_buyers_ids_become_pseudonyms_that_stay_the_same() -> None:
    replace = logs._pseudonyms(b"key")
    one = replace(None, "", {"user_id": "alice@example.com", "order_id": "ord_1"})
    again = replace(None, "", {"user_id": "alice@example.com"})
    other = replace(None, "", {"user_id": "bob@example.com"})
    elsewhere = logs._pseudonyms(b"other key")(None, "", {"user_id": "alice@example.com"})

    assert one["user_id"] == again["user_id"]
    assert one["user_id"].startswith("buyer-")
    assert len({one["user_id"], other["user_id"], elsewhere["user_id"]}) == 3
    assert one["order_id"] == "ord_1"
    assert replace(None, "", {"event": "x", "user_id": None}) == {"event": "x", "user_id": None}

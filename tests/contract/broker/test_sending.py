"""What both brokers do with a send."""

import asyncio

import pytest

from messaging.broker.base import FailureClass, SendOutcome
from messaging.broker.batch import MAX_BATCH_BYTES
from messaging.topology import TopicType
from tests.contract.broker.harness import Harness, collect, message

CONFIRMED = SendOutcome.CONFIRMED
DEFINITE = SendOutcome.DEFINITE_FAILURE


def test_ids_keys_tag_properties_and_bytes_arrive_unchanged(port: Harness) -> None:
    topic = port.topic()
    sent = message(
        topic,
        body=bytes(range(256)),
        tag="BLUE",
        keys=("rsv_1", "ord_1", "req_1"),
        properties={"message_id": "other", "origin_topic": topic, "traceparent": "00-ü-01"},
    )
    producer = port.broker.producer()
    before_ms = port.now_ms()

    result = producer.send([sent], timeout_ms=3000)

    assert (result.outcome, result.failure) == (CONFIRMED, None)
    with port.receiver(topic) as receiver:
        (got,) = collect(receiver)
        assert receiver.ack([got], timeout_ms=3000) == []
    assert (got.topic, got.message_id, got.body, got.tag) == (
        topic, sent.message_id, sent.body, sent.tag,
    )  # fmt: skip
    assert (got.keys, got.properties) == (sent.keys, sent.properties)
    assert got.delivery_attempt == 1
    assert before_ms <= got.stored_at_ms <= port.now_ms()
    producer.close()


def test_a_batch_keeps_its_order_and_every_message_its_own_id(port: Harness) -> None:
    topic = port.topic()
    sent = [message(topic, body=b"%d" % n) for n in range(32)]
    producer = port.broker.producer()

    result = producer.send(sent, timeout_ms=3000)

    assert result.outcome is CONFIRMED
    with port.receiver(topic) as receiver:
        got = collect(receiver, count=32)
        assert receiver.ack(got, timeout_ms=3000) == []
    assert [m.message_id for m in got] == [m.message_id for m in sent]
    assert [(m.body, m.keys) for m in got] == [(m.body, m.keys) for m in sent]
    producer.close()


def test_a_delayed_message_is_not_delivered_before_its_time(port: Harness) -> None:
    topic = port.topic(TopicType.DELAY)
    due_ms = port.now_ms() + 1500
    producer = port.broker.producer()

    result = producer.send([message(topic, deliver_at_ms=due_ms)], timeout_ms=3000)

    assert result.outcome is CONFIRMED
    with port.receiver(topic) as receiver:
        (got,) = collect(receiver, elapse=lambda: port.elapse(1.5))
        arrived_ms = port.now_ms()
        assert receiver.ack([got], timeout_ms=3000) == []
    assert due_ms - 1000 <= got.stored_at_ms  # the broker stores it anew when it is due
    assert due_ms <= arrived_ms < due_ms + 3000
    producer.close()


def test_a_delivery_time_in_the_past_means_now(port: Harness) -> None:
    topic = port.topic(TopicType.DELAY)
    sent = message(topic, deliver_at_ms=port.now_ms() - 60_000)
    producer = port.broker.producer()

    assert producer.send([sent], timeout_ms=3000).outcome is CONFIRMED

    with port.receiver(topic) as receiver:
        (got,) = collect(receiver, within_s=6)
        receiver.ack([got], timeout_ms=3000)
    assert got.message_id == sent.message_id
    producer.close()


@pytest.mark.parametrize("broken", ["mistyped", "missing"])
def test_a_topic_that_is_not_as_the_registry_says_is_a_configuration_failure(
    port: Harness, broken: str
) -> None:
    topic = port.mistyped_topic() if broken == "mistyped" else port.missing_topic()
    producer = port.broker.producer()

    result = producer.send([message(topic)], timeout_ms=3000)

    assert (result.outcome, result.failure) == (DEFINITE, FailureClass.CONFIGURATION)
    assert result.code == "40014"
    producer.close()


def test_a_topic_outside_the_registry_never_leaves_the_process(port: Harness) -> None:
    producer = port.broker.producer()

    result = producer.send([message("NOBODY_KNOWS_V1")], timeout_ms=3000)

    assert (result.outcome, result.failure) == (DEFINITE, FailureClass.CONFIGURATION)
    assert result.code == "UNKNOWN_TOPIC"
    producer.close()


def test_an_oversized_body_is_a_bad_message(port: Harness) -> None:
    producer = port.broker.producer()

    result = producer.send([message(port.topic(), body=b"x" * 262_145)], timeout_ms=3000)

    assert (result.outcome, result.failure) == (DEFINITE, FailureClass.BAD_MESSAGE)
    assert result.code == "41301"
    producer.close()


def test_an_oversized_batch_is_refused_whole_and_fits_when_cut(port: Harness) -> None:
    topic = port.topic()
    sent = [message(topic, body=b"x" * 4000) for _ in range(70)]
    producer = port.broker.producer()

    refused = producer.send(sent, timeout_ms=3000)
    results = [producer.send(half, timeout_ms=3000).outcome for half in (sent[:35], sent[35:])]

    assert (refused.failure, refused.code) == (FailureClass.BAD_MESSAGE, "BATCH_TOO_LARGE")
    assert results == [CONFIRMED, CONFIRMED]
    producer.close()


def test_the_largest_batch_that_is_not_refused_is_stored(port: Harness) -> None:
    """Our own estimate of a batch's size must stay above the broker's: over it comes a 50001."""
    topic = port.topic()
    one = message(topic, body=b"x" * 30)
    small = [message(topic, body=b"x" * 30) for _ in range(128)]
    large = [message(topic, body=b"x" * (MAX_BATCH_BYTES // 2 - 600)) for _ in range(2)]
    producer = port.broker.producer()

    outcomes = [producer.send(b, timeout_ms=3000).outcome for b in ([one], small, large)]

    assert outcomes == [CONFIRMED] * 3
    producer.close()


def test_what_cannot_be_one_send_is_refused(port: Harness) -> None:
    normal, delay = port.topic(), port.topic(TopicType.DELAY)
    due = port.now_ms() + 1000
    twice = message(normal)
    producer = port.broker.producer()
    wrong = {
        "EMPTY_BATCH": [],
        "MIXED_TOPICS": [message(normal), message(port.topic())],
        "BATCH_OF_TYPE": [message(delay, deliver_at_ms=due), message(delay, deliver_at_ms=due)],
        "DUPLICATE_IDS": [twice, twice],
        "DELIVERY_TIME": [message(normal, deliver_at_ms=due)],
        "UNKNOWN_TAG": [message(normal, tag="GREEN")],
    }

    results = {code: producer.send(batch, timeout_ms=3000) for code, batch in wrong.items()}

    assert {code: result.code for code, result in results.items()} == {c: c for c in wrong}
    assert {result.failure for result in results.values()} == {FailureClass.BAD_MESSAGE}
    assert producer.send([message(delay)], timeout_ms=3000).code == "DELIVERY_TIME"
    producer.close()


def test_an_unreachable_broker_is_a_definite_failure_to_retry_later(port: Harness) -> None:
    topic = port.topic()
    producer = port.unreachable().producer()

    result = producer.send([message(topic)], timeout_ms=3000)

    assert (result.outcome, result.failure) == (DEFINITE, FailureClass.RETRY_LATER)
    producer.close()


def test_a_time_out_is_unknown_never_a_failure(port: Harness) -> None:
    topic = port.topic()
    with port.silent() as broker:
        producer = broker.producer()

        result = producer.send([message(topic)], timeout_ms=200)

        assert (result.outcome, result.failure) == (SendOutcome.UNKNOWN, None)
        producer.close()


def test_a_closed_producer_sends_nothing(port: Harness) -> None:
    topic = port.topic()
    producer = port.broker.producer()
    producer.close()
    producer.close()

    result = producer.send([message(topic)], timeout_ms=3000)

    assert (result.outcome, result.failure) == (DEFINITE, FailureClass.RETRY_LATER)
    assert result.code == "CLOSED"


async def test_the_async_producer_keeps_the_same_contract(port: Harness) -> None:
    topic, delay = port.topic(), port.topic(TopicType.DELAY)
    sent = [message(topic) for _ in range(3)]
    producer = port.broker.async_producer()

    assert await producer.warm_up()
    results = await asyncio.gather(
        producer.send(sent, timeout_ms=3000),
        producer.send([message(delay, deliver_at_ms=port.now_ms() + 60_000)], timeout_ms=3000),
        producer.send([message(port.mistyped_topic())], timeout_ms=3000),
        producer.send([], timeout_ms=3000),
    )
    await producer.close()
    await producer.close()
    after = await producer.send(sent, timeout_ms=3000)

    assert [r.outcome for r in results] == [CONFIRMED, CONFIRMED, DEFINITE, DEFINITE]
    assert [r.failure for r in results[2:]] == [
        FailureClass.CONFIGURATION,
        FailureClass.BAD_MESSAGE,
    ]
    assert (after.failure, after.code) == (FailureClass.RETRY_LATER, "CLOSED")
    with port.receiver(topic) as receiver:
        got = await asyncio.to_thread(collect, receiver, count=3)
        receiver.ack(got, timeout_ms=3000)
    assert [m.message_id for m in got] == [m.message_id for m in sent]


async def test_the_async_producer_tells_unreachable_and_silent_apart(port: Harness) -> None:
    topic = port.topic()
    with port.silent() as broker:
        producer = broker.async_producer()
        silent = await producer.send([message(topic)], timeout_ms=200)
        await producer.close()
    producer = port.unreachable().async_producer()

    unreachable = await producer.send([message(topic)], timeout_ms=3000)

    assert (silent.outcome, silent.failure) == (SendOutcome.UNKNOWN, None)
    assert (unreachable.outcome, unreachable.failure) == (DEFINITE, FailureClass.RETRY_LATER)
    assert not await producer.warm_up()
    await producer.close()

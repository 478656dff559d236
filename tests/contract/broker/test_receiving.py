"""What both brokers do with receive, ack and the invisible time."""

import threading
import time
from collections import Counter
from dataclasses import replace

import pytest

from messaging.broker.base import ReceivedMessage
from messaging.errors import BrokerUnavailable
from messaging.topology import dlq_topic
from tests.contract.broker.harness import Harness, collect, message


def _send(port: Harness, topic: str, count: int = 1, **changes: object) -> list[str]:
    producer = port.broker.producer()
    sent = [message(topic, **changes) for _ in range(count)]
    assert producer.send(sent, timeout_ms=3000).code == "OK"
    producer.close()
    return [m.message_id for m in sent]


def test_only_what_was_not_acked_comes_back_with_one_attempt_more(port: Harness) -> None:
    topic = port.topic()
    ids = _send(port, topic, 3)
    with port.receiver(topic) as receiver:
        first = collect(receiver, count=3, invisible_s=1)
        assert receiver.ack([first[0], first[2]], timeout_ms=3000) == []

        again = collect(receiver, elapse=lambda: port.elapse(1.1))
        assert receiver.ack(again, timeout_ms=3000) == []
        rest = receiver.receive(max_messages=32, invisible_s=30, wait_s=5)

    assert [m.message_id for m in first] == ids
    assert [(m.message_id, m.delivery_attempt) for m in again] == [(ids[1], 2)]
    assert again[0].receipt_handle != first[1].receipt_handle
    assert rest == []


def test_the_end_of_the_invisible_time_is_never_promised_too_late(port: Harness) -> None:
    topic = port.topic()
    _send(port, topic)
    with port.receiver(topic) as receiver:
        called_at = port.monotonic()
        (got,) = collect(receiver, invisible_s=20)
        arrived_at = port.monotonic()
        receiver.ack([got], timeout_ms=3000)

    assert called_at + 20 <= got.invisible_until <= arrived_at + 20


def test_two_groups_each_get_everything(port: Harness) -> None:
    topic = port.topic()
    groups = [port.group(topic), port.group(topic)]
    ids = _send(port, topic, 2)

    got = []
    for group in groups:
        with port.receiver(topic, group) as receiver:
            messages = collect(receiver, count=2)
            assert receiver.ack(messages, timeout_ms=3000) == []
            got.append([m.message_id for m in messages])

    assert got == [ids, ids]


def test_a_group_gets_only_the_tags_that_it_asks_for(port: Harness) -> None:
    topic = port.topic()
    _send(port, topic, 2, tag="RED")
    blue = _send(port, topic, 2, tag="BLUE")

    with port.receiver(topic, tags=("BLUE",)) as receiver:
        got = collect(receiver, count=2)
        receiver.ack(got, timeout_ms=3000)

    assert [m.message_id for m in got] == blue


def test_a_failed_ack_is_reported_and_may_take_its_batch_with_it(port: Harness) -> None:
    topic = port.topic()
    ids = _send(port, topic, 3)
    with port.receiver(topic) as receiver:
        got = collect(receiver, count=3)
        broken = replace(got[1], receipt_handle="no such handle")

        lost = receiver.ack([got[0], broken, got[2]], timeout_ms=3000)

        assert ids[1] in lost
        again = [message for message in got if message.message_id in lost]
        assert receiver.ack(again, timeout_ms=3000) == []
        assert receiver.ack([], timeout_ms=3000) == []


def test_change_invisible_gives_a_new_handle_and_zero_gives_the_message_back(
    port: Harness,
) -> None:
    topic = port.topic()
    (message_id,) = _send(port, topic)
    with port.receiver(topic) as receiver:
        (got,) = collect(receiver, invisible_s=5)
        before = port.monotonic()

        held = receiver.change_invisible(got, invisible_s=30)
        assert held.receipt_handle != got.receipt_handle
        assert before + 30 <= held.invisible_until <= port.monotonic() + 30
        assert replace(held, receipt_handle="", invisible_until=0.0) == replace(
            got, receipt_handle="", invisible_until=0.0
        )
        port.elapse(6)
        receiver.change_invisible(held, invisible_s=0)
        (again,) = collect(receiver, elapse=lambda: port.elapse(0.1))

        assert (again.message_id, again.delivery_attempt) == (message_id, 2)
        assert receiver.ack([again], timeout_ms=3000) == []


def test_a_failed_change_of_the_invisible_time_leaves_the_old_handle_good(port: Harness) -> None:
    topic = port.topic()
    _send(port, topic)
    with port.receiver(topic) as receiver:
        (got,) = collect(receiver)

        with pytest.raises(BrokerUnavailable):
            receiver.change_invisible(replace(got, receipt_handle="no such"), invisible_s=30)

        assert receiver.ack([got], timeout_ms=3000) == []


def test_after_the_retry_limit_a_message_is_dead_and_can_be_read_there(port: Harness) -> None:
    """retryMaxTimes 1 = two deliveries. The copy keeps all but its topic and its count goes on:

    only a group with a large limit can read it more than once.
    """
    topic = port.topic()
    group = port.group(topic, max_retries=1)
    dead_topic = dlq_topic(group)
    drain_group = port.group(dead_topic, max_retries=1000)
    sent = message(topic, body=b"poison")
    producer = port.broker.producer()
    producer.send([sent], timeout_ms=3000)
    producer.close()
    attempts: list[int] = []
    with port.receiver(topic, group) as receiver, port.receiver(dead_topic, drain_group) as drain:
        for _ in range(2):
            (got,) = collect(receiver, invisible_s=1, elapse=lambda: port.elapse(1.1))
            attempts.append(got.delivery_attempt)
        port.elapse(1.1)
        # Nothing moves while nobody polls the group.
        dead: list[ReceivedMessage] = []
        poller = threading.Thread(target=_poll_until, args=(receiver, dead))
        poller.start()
        dead += collect(drain, invisible_s=1)
        poller.join()
        dead += collect(drain, elapse=lambda: port.elapse(1.1))
        assert drain.ack(dead[1:], timeout_ms=3000) == []

    assert attempts == [1, 2]
    assert {(m.topic, m.message_id, m.body, m.tag, m.keys) for m in dead} == {
        (dead_topic, sent.message_id, sent.body, sent.tag, sent.keys)
    }
    assert dead[0].properties == sent.properties
    assert [m.delivery_attempt for m in dead] == [4, 5]


def _poll_until(receiver, dead: list[ReceivedMessage]) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + 20
    while not dead and time.monotonic() < deadline:
        assert receiver.receive(max_messages=1, invisible_s=30, wait_s=5) == []


def test_an_unreachable_broker_is_named_by_every_call(port: Harness) -> None:
    topic = port.topic()
    group = port.group(topic)
    _send(port, topic)
    with port.receiver(topic, group) as receiver:
        (got,) = collect(receiver)
    away = port.unreachable().receiver(group=group, topic=topic)

    with pytest.raises(BrokerUnavailable):
        away.receive(max_messages=1, invisible_s=10, wait_s=5)
    with pytest.raises(BrokerUnavailable):
        away.change_invisible(got, invisible_s=10)
    assert away.ack([got], timeout_ms=500) == [got.message_id]
    away.close()


def test_a_closed_receiver_refuses_and_can_be_closed_again(port: Harness) -> None:
    topic = port.topic()
    _send(port, topic)
    receiver = port.broker.receiver(group=port.group(topic), topic=topic)
    (got,) = collect(receiver)
    receiver.close()
    receiver.close()

    with pytest.raises(BrokerUnavailable):
        receiver.receive(max_messages=1, invisible_s=10, wait_s=5)
    with pytest.raises(BrokerUnavailable):
        receiver.change_invisible(got, invisible_s=10)
    assert receiver.ack([got], timeout_ms=500) == [got.message_id]


def test_threads_of_one_receiver_share_the_messages(port: Harness) -> None:
    topic = port.topic()
    ids = _send(port, topic, 96)
    got: list[str] = []
    with port.receiver(topic) as receiver:

        def work() -> None:
            while len(got) < 96:
                messages = receiver.receive(max_messages=8, invisible_s=60, wait_s=5)
                got.extend(m.message_id for m in messages)
                assert receiver.ack(messages, timeout_ms=3000) == []

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)

    assert Counter(got) == Counter(ids)

"""The consumer loop on real PostgreSQL: nothing acked that is not committed, nothing stuck."""

import threading
from dataclasses import replace

import pytest
from django.db import connection, connections

from messaging.broker.base import ReceivedMessage
from messaging.broker.memory import MemoryBroker
from messaging.consumer import GroupConsumer, run_loop
from messaging.disposition import DONE, Decision
from messaging.models import QuarantineRow
from messaging.pulse import Pulse
from messaging.topology import ORDER_CREATE
from messaging.worker import StopSignal
from tests.integration.messaging.consuming import GROUP, SHORT, consuming
from tests.integration.messaging.messages import (
    OPTIONS,
    InboxHandler,
    acked,
    eventually,
    evt,
    inbox_ids,
    publish,
)

pytestmark = pytest.mark.django_db(transaction=True)


def test_everything_that_waits_is_one_batch_committed_then_acked(broker: MemoryBroker) -> None:
    ids = [evt() for _ in range(60)]
    publish(broker, *ids)
    handler = InboxHandler()

    with consuming(broker, handler):
        eventually(lambda: len(acked(broker)) == 60)

    assert inbox_ids() == set(ids)
    assert sorted(acked(broker)) == sorted(ids)
    assert sum(map(len, handler.batches)) == 60
    assert len(handler.batches) <= 4  # 32 a receive, never a message each


def test_the_same_message_to_two_consumers_at_a_barrier_has_one_effect(
    broker: MemoryBroker,
) -> None:
    """Case 9, with the first delivery still uncommitted when the second begins."""
    message_id = evt()
    publish(broker, message_id)
    barrier = threading.Barrier(2, timeout=10)
    receiver = broker.receiver(group=GROUP.name, topic=GROUP.topic)
    [message] = receiver.receive(max_messages=1, invisible_s=0, wait_s=1)
    decisions: list[Decision] = []

    def deliver() -> None:
        try:
            handler = InboxHandler()
            barrier.wait()
            decisions.extend(handler.handle([message]))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=deliver) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert sorted(d.disposition for d in decisions) == ["ACK_DONE", "ACK_DUPLICATE"]
    assert inbox_ids() == {message_id}


def test_a_message_is_acked_only_after_its_commit(broker: MemoryBroker) -> None:
    """Case 37: a failing COMMIT acks nothing; the redelivery does everything once."""
    message_id = evt()
    publish(broker, message_id)
    failures = iter([True])

    def kill_own_connection(ids: list[str]) -> None:
        if next(failures, False):
            assert acked(broker) == []
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    handler = InboxHandler(kill_own_connection)
    with consuming(broker, handler, options=SHORT):
        eventually(lambda: acked(broker) == [message_id])

    assert len(handler.batches) == 2
    assert inbox_ids() == {message_id}


def test_a_lost_ack_is_counted_and_the_redelivery_is_a_duplicate(broker: MemoryBroker) -> None:
    """Case 12: the second delivery changes nothing and is acked."""
    message_id = evt()
    publish(broker, message_id)
    broker.fail_next_acks(1)
    handler = InboxHandler()

    with consuming(broker, handler, options=SHORT):
        eventually(lambda: acked(broker) == [message_id])

    assert handler.batches == [[message_id], [message_id]]
    assert inbox_ids() == {message_id}
    assert not QuarantineRow.objects.exists()


def test_a_message_with_too_little_invisible_time_left_is_not_begun(broker: MemoryBroker) -> None:
    message_id = evt()
    publish(broker, message_id)
    handler = InboxHandler()
    receiver = broker.receiver(group=GROUP.name, topic=GROUP.topic)
    consumer = GroupConsumer(
        group=GROUP, handler=handler, receiver=receiver, stop=StopSignal(), pulse=Pulse(),
        options=replace(OPTIONS, min_left_s=7),
    )  # fmt: skip
    [late] = receiver.receive(max_messages=1, invisible_s=5, wait_s=1)

    consumer.work([late])
    assert handler.batches == []
    consumer.work([replace(late, delivery_attempt=GROUP.max_retries + 1)])  # nobody gets it again
    consumer._close()

    assert handler.batches == [[message_id]]
    assert acked(broker) == [message_id]


def test_stopping_finishes_what_is_in_flight_and_leaves_the_rest(broker: MemoryBroker) -> None:
    """Case 16's consumer half: a full batch in memory at SIGTERM loses nothing."""
    ids = [evt() for _ in range(300)]
    publish(broker, *ids)
    began, go_on = threading.Event(), threading.Event()

    def pause(batch: list[str]) -> None:
        began.set()
        assert go_on.wait(10)

    stop = StopSignal()
    handler = InboxHandler(pause)

    def run() -> None:
        try:
            receiver = broker.receiver(group=GROUP.name, topic=GROUP.topic)
            run_loop(GROUP, handler, receiver, stop, options=OPTIONS)
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    assert began.wait(10)
    stop.set()
    go_on.set()
    thread.join(10)

    assert not thread.is_alive()
    assert len(handler.batches) == 1
    assert set(acked(broker)) == inbox_ids() == set(handler.batches[0])
    rest = InboxHandler()
    with consuming(broker, rest):  # given back: others need not wait for the invisible time
        eventually(lambda: len(acked(broker)) == 300, within_s=5)
    assert inbox_ids() == set(ids)


def test_one_round_handles_what_one_receive_brings(broker: MemoryBroker) -> None:
    ids = [evt() for _ in range(3)]
    publish(broker, *ids)
    receiver = broker.receiver(group=GROUP.name, topic=GROUP.topic)

    run_loop(GROUP, InboxHandler(), receiver, StopSignal(), options=OPTIONS, once=True)

    assert inbox_ids() == set(ids)
    assert sorted(acked(broker)) == sorted(ids)


def test_batches_with_the_same_ids_in_any_order_do_not_deadlock() -> None:
    """Unsorted batches deadlock: here two handlers insert the same ids from both ends."""
    ids = sorted(evt() for _ in range(200))
    barrier = threading.Barrier(2, timeout=10)
    errors: list[Exception] = []
    decided: list[list[str]] = []

    def deliver(order: list[str]) -> None:
        handler = InboxHandler()
        try:
            for _ in range(3):
                barrier.wait()
                decisions = handler.handle([_received(i) for i in order])
                decided.append([d.disposition for d in decisions])
        except Exception as error:
            errors.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=deliver, args=(o,)) for o in (ids, ids[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert errors == []
    assert inbox_ids() == set(ids)
    assert sum(one.count("ACK_DONE") for one in decided) == 200


def test_the_same_id_twice_in_one_batch_has_one_effect() -> None:
    message_id = evt()

    decisions = InboxHandler().handle([_received(message_id)] * 2)

    assert inbox_ids() == {message_id}
    assert decisions == [DONE, DONE]  # both were settled by one committed row


def _received(message_id: str) -> ReceivedMessage:
    return ReceivedMessage(
        topic=ORDER_CREATE, message_id=message_id, body=b"{}", tag="CREATE_ORDER", keys=(),
        properties={}, delivery_attempt=1, receipt_handle="", invisible_until=0.0, stored_at_ms=0,
    )  # fmt: skip

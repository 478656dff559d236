"""Pollers and buffer: nothing is received that the next transaction cannot take."""

import queue
import threading
import time
from collections.abc import Callable
from typing import cast

import pytest

from messaging.broker.base import OutgoingMessage, Receiver
from messaging.broker.memory import MemoryBroker
from messaging.inflow import NO_REST, Inflow, LoopOptions, Rest
from messaging.pulse import Pulse
from messaging.topology import CG_ORDER_CREATE, ORDER_CREATE

OPTIONS = LoopOptions(
    batch_max=64, invisible_s=30, min_left_s=5, wait_s=1, ack_timeout_ms=1000, pollers=2
)


def eventually(condition: Callable[[], bool], within_s: float = 5.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "not within its time"
        time.sleep(0.005)


def fill(broker: MemoryBroker, count: int) -> None:
    producer = broker.producer()
    for number in range(count):
        producer.send(
            [
                OutgoingMessage(
                    topic=ORDER_CREATE, message_id=f"evt_{number}", body=b"{}", tag="CREATE_ORDER",
                    keys=(),
                )
            ],
            timeout_ms=1000,
        )  # fmt: skip


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


def inflow_of(broker: MemoryBroker, options: LoopOptions = OPTIONS) -> Inflow:
    receiver = broker.receiver(group=CG_ORDER_CREATE, topic=ORDER_CREATE)
    inflow = Inflow(receiver, group=CG_ORDER_CREATE, options=options, pulse=Pulse())
    inflow.start()
    return inflow


def received(broker: MemoryBroker) -> int:
    return len(broker._cursors[CG_ORDER_CREATE, ORDER_CREATE].deliveries)


def test_a_buffer_never_holds_more_than_one_batch(broker: MemoryBroker) -> None:
    fill(broker, 200)
    inflow = inflow_of(broker)
    try:
        inflow.resume()
        eventually(lambda: received(broker) == 64)
        batch = inflow.take(timeout_s=1)
        eventually(lambda: received(broker) == 128)

        assert len(batch) == 64
        assert len({m.message_id for m in batch}) == 64
    finally:
        inflow.close()
        inflow.join(2)


def test_nothing_is_received_while_held_and_what_waited_is_left(broker: MemoryBroker) -> None:
    fill(broker, 10)
    inflow = inflow_of(broker)
    try:
        assert inflow.take(timeout_s=0.05) == []  # starts held
        assert received(broker) == 0

        inflow.resume()
        eventually(lambda: received(broker) == 10)
        inflow.hold("outage")

        assert inflow.take(timeout_s=0.05) == []
        assert broker.acked(group=CG_ORDER_CREATE, topic=ORDER_CREATE) == []
    finally:
        inflow.close()
        inflow.join(2)


def test_closing_gives_back_what_waits_so_that_others_get_it_at_once(broker: MemoryBroker) -> None:
    fill(broker, 10)
    inflow = inflow_of(broker)
    inflow.resume()
    eventually(lambda: received(broker) == 10)

    inflow.close()
    inflow.join(2)
    other = broker.receiver(group=CG_ORDER_CREATE, topic=ORDER_CREATE)
    again = other.receive(max_messages=32, invisible_s=30, wait_s=1)

    assert sorted(m.message_id for m in again) == sorted(f"evt_{n}" for n in range(10))


def test_a_broker_that_is_away_is_asked_again_until_it_is_back(broker: MemoryBroker) -> None:
    broker.available = False
    inflow = inflow_of(broker)
    try:
        inflow.resume()
        eventually(lambda: inflow.failing)
        broker.available = True
        fill(broker, 1)
        batches = []
        eventually(lambda: bool(batches.extend(inflow.take(timeout_s=0.1)) or batches))
        eventually(lambda: not inflow.failing)
    finally:
        inflow.close()
        inflow.join(2)


def test_a_poller_survives_a_crash_of_the_adapter(broker: MemoryBroker) -> None:
    fill(broker, 1)
    receiver = broker.receiver(group=CG_ORDER_CREATE, topic=ORDER_CREATE)
    crashed = threading.Event()
    receive = receiver.receive

    def crash_once(**kwargs: int) -> object:
        if not crashed.is_set():
            crashed.set()
            raise RuntimeError("adapter bug")
        return receive(**kwargs)

    receiver.receive = crash_once  # type: ignore[method-assign,assignment]
    inflow = Inflow(receiver, group=CG_ORDER_CREATE, options=OPTIONS, pulse=Pulse())
    inflow.start()
    try:
        inflow.resume()
        batch: list[object] = []
        eventually(lambda: bool(batch.extend(inflow.take(timeout_s=0.1)) or batch))
    finally:
        inflow.close()
        inflow.join(2)


class Questions:
    """A receiver that counts its open questions and answers what the test gives it."""

    def __init__(self) -> None:
        self.answers: queue.Queue[int] = queue.Queue()
        self.asked = 0
        self.open = 0
        self.most_open = 0
        self._lock = threading.Lock()

    def receive(self, *, max_messages: int, **_: int) -> list[object]:
        with self._lock:
            self.asked += 1
            self.open += 1
            self.most_open = max(self.most_open, self.open)
        count = self.answers.get()
        with self._lock:
            self.open -= 1
        return [object()] * min(count, max_messages)


def asking(receiver: Questions, *, rest: Rest = NO_REST) -> Inflow:
    inflow = Inflow(
        cast("Receiver", receiver),
        group=CG_ORDER_CREATE,
        options=OPTIONS,
        pulse=Pulse(),
        rest=rest,
    )
    inflow.start()
    inflow.resume()
    return inflow


def test_one_question_is_open_at_a_time_until_an_answer_is_full() -> None:
    receiver = Questions()
    inflow = asking(receiver)
    try:
        for _ in range(3):
            receiver.answers.put(0)
        eventually(lambda: receiver.asked == 4)
        assert receiver.most_open == 1

        receiver.answers.put(32)  # there is more: ask again at once, with both
        eventually(lambda: receiver.asked == 5)
        inflow.take(timeout_s=1)
        eventually(lambda: receiver.open == 2)
    finally:
        inflow.close()
        for _ in range(4):
            receiver.answers.put(0)
        inflow.join(2)


def test_after_little_work_came_the_loop_rests_in_proportion_while_more_gathers() -> None:
    receiver = Questions()
    inflow = asking(receiver, rest=Rest(per_work=3, least_s=0.05))
    try:
        receiver.answers.put(0)  # nothing came: asked again at once
        eventually(lambda: receiver.asked == 2)
        receiver.answers.put(1)
        assert len(inflow.take(timeout_s=5)) == 1  # what came is handed on at once

        assert 0.5 < inflow._early_s() <= 1.0  # nothing is asked for while it is handled
        inflow.worked(0.001)
        assert 0 < inflow._early_s() <= 0.05  # as long as a loop rests at least
        inflow.worked(0.1)
        assert 0.2 < inflow._early_s() <= 0.3
        inflow.worked(3600)
        assert 0.9 < inflow._early_s() <= 1.0  # never longer than a second
        inflow.hold("outage")
        inflow.resume()
        eventually(lambda: receiver.open == 1)  # a new beginning: ask at once
    finally:
        inflow.close()
        receiver.answers.put(0)
        inflow.join(2)

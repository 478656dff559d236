"""Broker and proxy killed and started again: the adapter's clients go on by themselves within 5 s.

Also the times between: what is sent into a dead broker is never called confirmed, and no clean
answer of a receive is invented.
"""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from devstack.stack import Stack
from messaging import topology
from messaging.broker.base import Producer, Receiver, SendOutcome, SendResult
from messaging.broker.rocketmq import RocketMQBroker
from messaging.broker.rocketmq_channel import Connection
from messaging.errors import BrokerUnavailable
from messaging.provision import provision
from messaging.provision_remoting import Admin
from messaging.topology import GroupSpec, TopicSpec
from tests.contract.broker.harness import message, new_group, new_topic

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]
BAR_S = 5.0


@dataclass
class Rig:
    """A private RocketMQ with one topic, one group, and clients that never get recreated."""

    stack: Stack
    topic: TopicSpec
    group: GroupSpec
    bystanders: GroupSpec
    producer: Producer
    receiver: Receiver
    confirmed: dict[str, float] = field(default_factory=dict)
    received: dict[str, float] = field(default_factory=dict)
    results: list[tuple[float, SendResult]] = field(default_factory=list)
    refusals: int = 0
    stopped: threading.Event = field(default_factory=threading.Event)

    def send_for_ever(self) -> None:
        while not self.stopped.wait(0.05):
            out = message(self.topic.name)
            result = self.producer.send([out], timeout_ms=1000)
            self.results.append((time.monotonic(), result))
            if result.outcome is SendOutcome.CONFIRMED:
                self.confirmed[out.message_id] = time.monotonic()

    def receive_for_ever(self) -> None:
        while not self.stopped.is_set():
            try:
                got = self.receiver.receive(max_messages=32, invisible_s=2, wait_s=5)
            except BrokerUnavailable:
                self.refusals += 1
                self.stopped.wait(0.1)
                continue
            lost = self.receiver.ack(got, timeout_ms=1000)
            for one in got:
                if one.message_id not in lost:
                    self.received.setdefault(one.message_id, time.monotonic())

    def service_s(self) -> float:
        """Wait until clients made this moment can send and receive; return when they could.

        How long broker and proxy need until they serve anybody is the machine's; what is judged is
        how long clients that saw the restart take beyond that.
        """
        broker = RocketMQBroker(Connection(endpoints=self.stack.urls()["ROCKETMQ_ENDPOINTS"]))
        producer = broker.producer()
        receiver = broker.receiver(group=self.bystanders.name, topic=self.topic.name)

        def served() -> bool:
            producer.send([message(self.topic.name)], timeout_ms=1000)
            try:
                return bool(receiver.receive(max_messages=32, invisible_s=2, wait_s=1))
            except BrokerUnavailable:
                return False

        try:
            return _wait(served, "service for anybody", timeout_s=60)
        finally:
            receiver.close()
            producer.close()


def _wait(condition: object, what: str, *, timeout_s: float) -> float:
    deadline = time.monotonic() + timeout_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.02)
    return time.monotonic()


@pytest.fixture
def rig(private_stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    topic = new_topic()
    group, bystanders = new_group(topic.name), new_group(topic.name)
    groups = {one.name: one for one in (group, bystanders)}
    monkeypatch.setattr(topology, "_TOPICS", {**topology._TOPICS, topic.name: topic})
    monkeypatch.setattr(topology, "_GROUPS", {**topology._GROUPS, **groups})
    urls = private_stack.urls()
    admin = Admin(namesrv=urls["ROCKETMQ_NAMESRV"], cluster=urls["ROCKETMQ_CLUSTER"])
    provision(topics=[topic], groups=[group, bystanders], admin=admin)
    broker = RocketMQBroker(Connection(endpoints=urls["ROCKETMQ_ENDPOINTS"]))
    made = Rig(
        stack=private_stack,
        topic=topic,
        group=group,
        bystanders=bystanders,
        producer=broker.producer(),
        receiver=broker.receiver(group=group.name, topic=topic.name),
    )
    threads = [
        threading.Thread(target=made.send_for_ever),
        threading.Thread(target=made.receive_for_ever),
    ]
    for thread in threads:
        thread.start()
    _wait(lambda: made.received, "first message", timeout_s=20)
    yield made
    made.stopped.set()
    made.receiver.close()
    for thread in threads:
        thread.join(15)
    made.producer.close()


@pytest.mark.parametrize("service", ["broker", "proxy"])
def test_clients_work_again_within_5_s_of_a_restart(rig: Rig, service: str) -> None:
    killed_at = time.monotonic()
    rig.stack.kill(service)
    _wait(
        lambda: any(at > killed_at and r.outcome != "CONFIRMED" for at, r in rig.results),
        "a send that noticed",
        timeout_s=30,
    )

    rig.stack.start(service)
    up_at = rig.service_s()
    _wait(lambda: any(at > up_at for at in rig.confirmed.values()), "sending", timeout_s=BAR_S)
    _wait(
        lambda: any(sent > up_at and m in rig.received for m, sent in list(rig.confirmed.items())),
        "receiving what was sent after the restart",
        timeout_s=BAR_S - (time.monotonic() - up_at),
    )
    recovered_s = time.monotonic() - up_at
    print(f"{service}: sending and receiving {recovered_s:.2f} s after it served anybody")

    # Whatever was confirmed, before or after, is still there and arrives.
    rig.stopped.wait(0.5)
    _wait(
        lambda: set(rig.confirmed) <= set(rig.received),
        "every confirmed message",
        timeout_s=40,
    )

"""One face for the two brokers under the contract: topics of one's own, a clock, broken ones."""

import secrets
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ulid import ULID

from messaging import topology
from messaging.broker.base import Broker, OutgoingMessage, ReceivedMessage, Receiver
from messaging.broker.memory import ManualClock, MemoryBroker, SendFault
from messaging.broker.rocketmq import RocketMQBroker
from messaging.broker.rocketmq_channel import Connection
from messaging.provision import admin_from_settings, provision
from messaging.topology import GroupSpec, TopicSpec, TopicType


def new_topic(type_: TopicType = TopicType.NORMAL) -> TopicSpec:
    """A registry entry that only this test has. One queue: order is then a promise."""
    return TopicSpec(
        name=f"TEST_{secrets.token_hex(4).upper()}_V1",
        type=type_,
        queues=1,
        tags=("RED", "BLUE"),
        owner="messaging",
        durability="SYNC_FLUSH",
        if_lost="a test fails",
        if_doubled="a test fails",
        if_out_of_order="a test fails",
        if_piled_up="a test is slow",
    )


def new_group(topic: str, *, max_retries: int = 16) -> GroupSpec:
    """A registry entry that only this test has."""
    return GroupSpec(
        name=f"CG_TEST_{secrets.token_hex(4).upper()}_V1",
        topic=topic,
        tags=("RED", "BLUE"),
        max_retries=max_retries,
        idempotency="none",
        schema_versions=(1,),
        has_inbox=False,
        core=False,
    )


def message(topic: str, **changes: object) -> OutgoingMessage:
    """A message with an id of its own."""
    message_id = f"evt_{ULID()}"
    terms: dict[str, object] = {
        "topic": topic,
        "message_id": message_id,
        "body": b'{"n":1}',
        "tag": "RED",
        "keys": (f"rsv_{message_id[4:]}", f"ord_{message_id[4:]}"),
        "properties": {"message_id": message_id, "origin_topic": topic, "send_attempt": "1"},
    }
    return OutgoingMessage(**(terms | changes))  # type: ignore[arg-type]


class Harness:
    """What the contract needs beside the port itself."""

    name: str
    broker: Broker

    def topic(self, type_: TopicType = TopicType.NORMAL) -> str:
        """Make a topic and return its registry name."""
        spec = new_topic(type_)
        topology._TOPICS[spec.name] = spec
        self._make(topics=[spec], groups=[])
        return spec.name

    def mistyped_topic(self) -> str:
        """Return a topic that is NORMAL in the registry and DELAY at the broker."""
        spec = new_topic()
        topology._TOPICS[spec.name] = spec
        self._make_mistyped(spec)
        return spec.name

    def missing_topic(self) -> str:
        """Return a topic that only the registry has."""
        spec = new_topic()
        topology._TOPICS[spec.name] = spec
        return spec.name

    def group(self, topic: str, *, max_retries: int = 16) -> str:
        """Make a group and return its registry name."""
        spec = new_group(topic, max_retries=max_retries)
        topology._GROUPS[spec.name] = spec
        self._make(topics=[], groups=[spec])
        return spec.name

    @contextmanager
    def receiver(
        self, topic: str, group: str | None = None, tags: Sequence[str] = ()
    ) -> Iterator[Receiver]:
        """Open a receiver, of a new group unless one is given."""
        receiver = self.broker.receiver(group=group or self.group(topic), topic=topic, tags=tags)
        yield receiver
        receiver.close()

    def elapse(self, seconds: float) -> None:
        """Let time pass where time can be turned; the real broker's passes by itself."""

    def now_ms(self) -> int:
        """Return the broker's epoch milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Return the clock of `invisible_until`."""
        return time.monotonic()

    def unreachable(self) -> Broker:
        """Return a broker that nobody can connect to."""
        raise NotImplementedError

    @contextmanager
    def silent(self) -> Iterator[Broker]:
        """A broker that takes the connection and never answers."""
        raise NotImplementedError
        yield

    def _make(self, *, topics: Sequence[TopicSpec], groups: Sequence[GroupSpec]) -> None:
        raise NotImplementedError

    def _make_mistyped(self, spec: TopicSpec) -> None:
        raise NotImplementedError


class MemoryHarness(Harness):
    """The twin, with a clock that only tests move."""

    name = "memory"

    def __init__(self) -> None:
        self._clock = ManualClock()
        self.broker = self._memory = MemoryBroker(clock=self._clock)

    def elapse(self, seconds: float) -> None:
        self._clock.advance(seconds)

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def unreachable(self) -> Broker:
        self._memory.available = False
        return self._memory

    @contextmanager
    def silent(self) -> Iterator[Broker]:
        self._memory.fail_next_sends(SendFault.UNKNOWN_LOST)
        yield self._memory

    def _make(self, *, topics: Sequence[TopicSpec], groups: Sequence[GroupSpec]) -> None:
        for topic in topics:
            self._memory.add_topic(topic)
        for group in groups:
            self._memory.add_group(group)

    def _make_mistyped(self, spec: TopicSpec) -> None:
        self._memory.add_topic(spec, type=TopicType.DELAY)


class RocketMQHarness(Harness):
    """The real broker of the stack."""

    name = "rocketmq"

    def __init__(self) -> None:
        self.broker = RocketMQBroker.from_settings()
        self._admin = admin_from_settings()
        self._connections: list[socket.socket] = []

    def unreachable(self) -> Broker:
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            port = closed.getsockname()[1]
        return RocketMQBroker(Connection(endpoints=f"127.0.0.1:{port}"))

    @contextmanager
    def silent(self) -> Iterator[Broker]:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            listening.settimeout(10)
            self._listening = listening
            port = listening.getsockname()[1]
            yield RocketMQBroker(Connection(endpoints=f"127.0.0.1:{port}"))
        for connection in self._connections:
            connection.close()

    def wait_connected(self) -> None:
        """Wait until somebody has connected to the silent broker and said something."""
        connection, _ = self._listening.accept()
        self._connections.append(connection)
        connection.settimeout(10)
        assert connection.recv(1)

    def _make(self, *, topics: Sequence[TopicSpec], groups: Sequence[GroupSpec]) -> None:
        provision(topics=topics, groups=groups, admin=self._admin)

    def _make_mistyped(self, spec: TopicSpec) -> None:
        config = {
            "topicName": topology.physical_topic(spec.name),
            "readQueueNums": 1,
            "writeQueueNums": 1,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "attributes": {"+message.type": "DELAY"},
        }
        for address in self._admin.masters().values():
            self._admin.update_topics(address, [config])


def collect(
    receiver: Receiver,
    *,
    count: int = 1,
    invisible_s: int = 30,
    elapse: Callable[[], None] = lambda: None,
    within_s: float = 20,
) -> list[ReceivedMessage]:
    """Receive until `count` messages are there; calls `elapse` after every empty answer."""
    found: list[ReceivedMessage] = []
    deadline = time.monotonic() + within_s
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {len(found)} of {count} messages came"
        got = receiver.receive(max_messages=32, invisible_s=invisible_s, wait_s=5)
        if not got:
            elapse()
        found += got
    return found

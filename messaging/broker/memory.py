"""The in-memory twin of the broker, for unit tests: same rules, no network, a clock to turn.

It knows topics and groups by the registry, enforces types, hides a received message for the
invisible time, delivers it again, moves it to `%DLQ%group` after the retry limit, and can be told
what the next sends or acks shall do. The contract suite runs on it and on the real broker.
"""

import itertools
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Protocol

from messaging import topology
from messaging.broker.base import FailureClass, OutgoingMessage, ReceivedMessage, SendResult
from messaging.broker.batch import refusal
from messaging.broker.outcome import CONFIRMED, failed, unknown
from messaging.errors import BrokerUnavailable
from messaging.topology import GroupSpec, TopicSpec, TopicType

MAX_BODY: Final = 262_144
_MAX_MESSAGES: Final = 32


class SendFault(StrEnum):
    """What an injected fault does to one send."""

    UNKNOWN_STORED = "UNKNOWN_STORED"
    UNKNOWN_LOST = "UNKNOWN_LOST"
    RETRY_LATER = FailureClass.RETRY_LATER
    LOAD = FailureClass.LOAD
    CONFIGURATION = FailureClass.CONFIGURATION
    BAD_MESSAGE = FailureClass.BAD_MESSAGE


class Clock(Protocol):
    """Both clocks of a process."""

    def now_ms(self) -> int:
        """Return epoch milliseconds."""
        ...

    def monotonic(self) -> float:
        """Return monotonic seconds."""
        ...

    def wait(self, condition: threading.Condition, seconds: float) -> bool:
        """Wait for a change or some time; False when waiting makes no sense."""
        ...


class SystemClock:
    """The real clocks."""

    def now_ms(self) -> int:
        """Return epoch milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    def wait(self, condition: threading.Condition, seconds: float) -> bool:
        """Wait, but look again every 20 ms: invisible times end without a notification."""
        condition.wait(min(seconds, 0.02))
        return True


class ManualClock:
    """Clocks that only `advance` moves; with them `receive` never blocks."""

    def __init__(self, *, start_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = start_ms
        self._elapsed_s = 0.0

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._elapsed_s += seconds

    def now_ms(self) -> int:
        """Return epoch milliseconds."""
        return self._start_ms + round(self._elapsed_s * 1000)

    def monotonic(self) -> float:
        """Return seconds since the start."""
        return self._elapsed_s

    def wait(self, condition: threading.Condition, seconds: float) -> bool:
        """Return at once."""
        return False


@dataclass(slots=True)
class _Stored:
    message: OutgoingMessage
    stored_at_ms: int
    base_attempt: int = 0


@dataclass(slots=True)
class _Delivery:
    attempt: int
    invisible_until: float
    handle: str


@dataclass(slots=True)
class _Cursor:
    """What one group has done with one topic."""

    head: int = 0  # everything before it is done
    done: set[int] = field(default_factory=set)
    deliveries: dict[int, _Delivery] = field(default_factory=dict)
    by_handle: dict[str, int] = field(default_factory=dict)
    acked: list[str] = field(default_factory=list)


class MemoryBroker:
    """`Broker` in memory.

    Args:
        topics: what exists; by default the enabled topics of the registry.
        groups: what exists; by default the enabled groups of the registry.
        clock: by default the real clocks.
    """

    def __init__(
        self,
        *,
        topics: Iterable[TopicSpec] | None = None,
        groups: Iterable[GroupSpec] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.available = True
        self._changed = threading.Condition()
        self._types: dict[str, TopicType] = {}
        self._retries: dict[str, int] = {}
        self._logs: dict[str, list[_Stored]] = defaultdict(list)
        self._cursors: dict[tuple[str, str], _Cursor] = defaultdict(_Cursor)
        self._faults: deque[SendFault] = deque()
        self._failing_acks = 0
        self._handles = itertools.count(1)
        for topic in topology.enabled_topics() if topics is None else topics:
            self.add_topic(topic)
        for group in topology.enabled_groups() if groups is None else groups:
            self.add_group(group)

    def producer(self) -> "MemoryProducer":
        """Return a new producer."""
        return MemoryProducer(self)

    def async_producer(self) -> "MemoryAsyncProducer":
        """Return a new producer for an event loop."""
        return MemoryAsyncProducer(self)

    def receiver(
        self, *, group: str, topic: str, tags: Sequence[str] = (), beside: Sequence[str] = ()
    ) -> "MemoryReceiver":
        """Return a new receiver; `beside` makes no difference in memory."""
        return MemoryReceiver(self, group=group, topic=topic, tags=tags)

    # --- what tests turn and look at ---------------------------------------------------------

    def add_topic(self, spec: TopicSpec, *, type: TopicType | None = None) -> None:
        """Make a topic exist, on demand with another type than the registry says."""
        self._types[spec.name] = type or spec.type

    def add_group(self, spec: GroupSpec) -> None:
        """Make a group and its dead letter topic exist."""
        self._retries[spec.name] = spec.max_retries
        self._types[topology.dlq_topic(spec.name)] = TopicType.NORMAL

    def fail_next_sends(self, *faults: SendFault) -> None:
        """Inject one fault into each of the next sends."""
        with self._changed:
            self._faults.extend(faults)

    def fail_next_acks(self, count: int = 1) -> None:
        """Let the next ack calls fail as a whole."""
        with self._changed:
            self._failing_acks += count

    def stored(self, topic: str) -> list[OutgoingMessage]:
        """Return everything that was stored in a topic, oldest first."""
        with self._changed:
            return [item.message for item in self._logs[topic]]

    def acked(self, *, group: str, topic: str) -> list[str]:
        """Return the ids that a group has acked, in order."""
        with self._changed:
            return list(self._cursors[group, topic].acked)

    # --- what the clients call ---------------------------------------------------------------

    def _send(self, messages: Sequence[OutgoingMessage]) -> SendResult:
        refused = refusal(messages)
        if refused is not None:
            return refused
        with self._changed:
            if not self.available:
                return failed(FailureClass.RETRY_LATER, "UNAVAILABLE")
            fault = self._faults.popleft() if self._faults else None
            if fault is SendFault.UNKNOWN_LOST:
                return unknown("INJECTED")
            if fault is not None and fault is not SendFault.UNKNOWN_STORED:
                return failed(FailureClass(fault.value), "INJECTED")
            spec = topology.topic_spec(messages[0].topic)
            if self._types.get(spec.name) is not spec.type:
                return failed(FailureClass.CONFIGURATION, "40014")
            if any(len(message.body) > MAX_BODY for message in messages):
                return failed(FailureClass.BAD_MESSAGE, "41301")
            now_ms = self.clock.now_ms()
            self._logs[spec.name].extend(_Stored(message, now_ms) for message in messages)
            self._changed.notify_all()
            return unknown("INJECTED") if fault else CONFIRMED

    def _receive(
        self, receiver: "MemoryReceiver", max_messages: int, invisible_s: int, wait_s: int
    ) -> list[ReceivedMessage]:
        deadline = self.clock.monotonic() + wait_s
        with self._changed:
            while True:
                if receiver.closed:
                    raise BrokerUnavailable("the receiver is closed")
                if not self.available:
                    raise BrokerUnavailable("injected")
                if receiver.group not in self._retries or receiver.topic not in self._types:
                    raise BrokerUnavailable(f"no {receiver.topic} or {receiver.group}")
                found = self._take(receiver, min(max_messages, _MAX_MESSAGES), invisible_s)
                left = deadline - self.clock.monotonic()
                if found or left <= 0 or not self.clock.wait(self._changed, left):
                    return found

    def _take(
        self, receiver: "MemoryReceiver", max_messages: int, invisible_s: int
    ) -> list[ReceivedMessage]:
        cursor = self._cursors[receiver.group, receiver.topic]
        log = self._logs[receiver.topic]
        now, now_ms = self.clock.monotonic(), self.clock.now_ms()
        found: list[ReceivedMessage] = []
        while cursor.head in cursor.done:
            cursor.done.remove(cursor.head)
            cursor.head += 1
        for offset in range(cursor.head, len(log)):
            if len(found) == max_messages:
                break
            item, last = log[offset], cursor.deliveries.get(offset)
            if offset in cursor.done or (last and last.invisible_until > now):
                continue
            if (item.message.deliver_at_ms or 0) > now_ms:
                continue
            if receiver.tags and item.message.tag not in receiver.tags:
                cursor.done.add(offset)
                continue
            attempt = (last.attempt if last else item.base_attempt) + 1
            if last and attempt > self._retries[receiver.group] + 1:
                self._bury(receiver.group, item, attempt, cursor, offset)
                continue
            delivery = _Delivery(attempt, now + invisible_s, f"handle-{next(self._handles)}")
            self._point(cursor, offset, delivery)
            found.append(_received(receiver.topic, item, delivery))
        return found

    def _point(self, cursor: _Cursor, offset: int, delivery: _Delivery) -> None:
        """Make a new handle the only good one."""
        old = cursor.deliveries.get(offset)
        if old:
            cursor.by_handle.pop(old.handle, None)
        cursor.deliveries[offset] = delivery
        cursor.by_handle[delivery.handle] = offset

    def _bury(self, group: str, item: _Stored, attempt: int, cursor: _Cursor, offset: int) -> None:
        cursor.done.add(offset)
        self._point(cursor, offset, _Delivery(attempt, float("inf"), "buried"))
        dead = _Stored(item.message, self.clock.now_ms(), base_attempt=attempt)
        dead.message = replace(item.message, deliver_at_ms=None)
        self._logs[topology.dlq_topic(group)].append(dead)

    def _ack(self, receiver: "MemoryReceiver", messages: Sequence[ReceivedMessage]) -> list[str]:
        with self._changed:
            if receiver.closed or not self.available or self._failing_acks:
                self._failing_acks = max(0, self._failing_acks - 1)
                return [message.message_id for message in messages]
            cursor = self._cursors[receiver.group, receiver.topic]
            lost = []
            for message in messages:
                offset = cursor.by_handle.get(message.receipt_handle)
                if offset is None:
                    lost.append(message.message_id)
                    continue
                cursor.done.add(offset)
                cursor.acked.append(message.message_id)
            return lost

    def _change(
        self, receiver: "MemoryReceiver", message: ReceivedMessage, invisible_s: int
    ) -> ReceivedMessage:
        with self._changed:
            cursor = self._cursors[receiver.group, receiver.topic]
            offset = cursor.by_handle.get(message.receipt_handle)
            if offset is None or receiver.closed or not self.available:
                raise BrokerUnavailable("change of invisible time: 40013")
            until = self.clock.monotonic() + invisible_s
            handle = f"handle-{next(self._handles)}"
            self._point(cursor, offset, _Delivery(message.delivery_attempt, until, handle))
            self._changed.notify_all()
            return replace(message, receipt_handle=handle, invisible_until=until)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


def _received(topic: str, item: _Stored, delivery: _Delivery) -> ReceivedMessage:
    return ReceivedMessage(
        topic=topic,
        message_id=item.message.message_id,
        body=item.message.body,
        tag=item.message.tag,
        keys=item.message.keys,
        properties=dict(item.message.properties),
        delivery_attempt=delivery.attempt,
        receipt_handle=delivery.handle,
        invisible_until=delivery.invisible_until,
        # A delayed message is stored anew when it is due.
        stored_at_ms=max(item.stored_at_ms, item.message.deliver_at_ms or 0),
    )


class MemoryProducer:
    """`Producer` in memory."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._closed = False

    def send(self, messages: Sequence[OutgoingMessage], *, timeout_ms: int) -> SendResult:
        """Store a batch, or do what was injected."""
        if self._closed:
            return failed(FailureClass.RETRY_LATER, "CLOSED")
        return self._broker._send(messages)

    def close(self) -> None:
        """Refuse further sends."""
        self._closed = True


class MemoryAsyncProducer:
    """`AsyncProducer` in memory."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._producer = MemoryProducer(broker)
        self._broker = broker

    async def send(self, messages: Sequence[OutgoingMessage], *, timeout_ms: int) -> SendResult:
        """Store a batch, or do what was injected."""
        return self._producer.send(messages, timeout_ms=timeout_ms)

    async def warm_up(self) -> bool:
        """Tell whether the broker is available."""
        return self._broker.available

    async def close(self) -> None:
        """Refuse further sends."""
        self._producer.close()


class MemoryReceiver:
    """`Receiver` in memory."""

    def __init__(
        self, broker: MemoryBroker, *, group: str, topic: str, tags: Sequence[str]
    ) -> None:
        self._broker = broker
        self.group = group
        self.topic = topic
        self.tags = frozenset(tags)
        self.closed = False

    def receive(self, *, max_messages: int, invisible_s: int, wait_s: int) -> list[ReceivedMessage]:
        """Return what is visible; with the real clocks wait up to `wait_s` for it."""
        return self._broker._receive(self, max_messages, invisible_s, wait_s)

    def ack(self, messages: Sequence[ReceivedMessage], *, timeout_ms: int) -> list[str]:
        """Ack a batch; return the ids whose handle is no longer good."""
        return self._broker._ack(self, messages)

    def change_invisible(self, message: ReceivedMessage, *, invisible_s: int) -> ReceivedMessage:
        """Move the end of the invisible time; returns the message with its new handle."""
        return self._broker._change(self, message, invisible_s)

    def close(self) -> None:
        """Refuse further calls and wake a `receive` that waits."""
        self.closed = True
        self._broker._wake()

"""The port to the broker: records, outcomes and protocols that every adapter keeps (pure).

Two adapters, `rocketmq` (the real one) and `memory` (unit tests), are held to one contract suite.
Source: docs/messaging.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


@dataclass(frozen=True, kw_only=True, slots=True)
class OutgoingMessage:
    """A message ready to send. `topic` is the registry's short name (`ORDER_CREATE_V1`).

    `deliver_at_ms` (epoch ms) only for DELAY topics. Ids and bytes never change between attempts.
    """

    topic: str
    message_id: str
    body: bytes
    tag: str
    keys: tuple[str, ...]
    properties: Mapping[str, str] = field(default_factory=dict)
    deliver_at_ms: int | None = None


class SendOutcome(StrEnum):
    """What is known after ONE attempt. A time-out is UNKNOWN, never a failure."""

    CONFIRMED = "CONFIRMED"
    UNKNOWN = "UNKNOWN"
    DEFINITE_FAILURE = "DEFINITE_FAILURE"


class FailureClass(StrEnum):
    """Why a definite failure failed."""

    RETRY_LATER = "RETRY_LATER"  # nothing left this process
    LOAD = "LOAD"  # the broker throttles
    CONFIGURATION = "CONFIGURATION"  # topic, permission, credentials: alert, fail closed
    BAD_MESSAGE = "BAD_MESSAGE"  # illegal tag, key, property or size: a bug


@dataclass(frozen=True, kw_only=True, slots=True)
class SendResult:
    """Outcome of one attempt for a whole batch (a batch is stored whole or not at all)."""

    outcome: SendOutcome
    failure: FailureClass | None = None
    code: str = ""
    detail: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReceivedMessage:
    """One delivery. `topic` is the registry's short name, also for `%DLQ%…` (the physical name).

    `invisible_until` is on the monotonic clock: after it the broker may deliver it to another.
    `stored_at_ms` is the broker's store time in epoch ms (0 when unknown). `born_at_ms` is the
    sender's: every copy of one send has the same, also in a retry or dead letter topic. Place and
    host are evidence only.
    """

    topic: str
    message_id: str
    body: bytes
    tag: str
    keys: tuple[str, ...]
    properties: Mapping[str, str]
    delivery_attempt: int
    receipt_handle: str
    invisible_until: float
    stored_at_ms: int
    born_at_ms: int = 0
    store_host: str = ""
    queue_id: int | None = None
    queue_offset: int | None = None


class Producer(Protocol):
    """Sends in one attempt; never retries by itself, never raises for what the broker says."""

    def send(self, messages: Sequence[OutgoingMessage], *, timeout_ms: int) -> SendResult:
        """Send a batch of one NORMAL topic, or exactly one message of another type."""
        ...

    def close(self) -> None:
        """Close connections. Safe to call twice."""
        ...


class AsyncProducer(Protocol):
    """`Producer` for an event loop."""

    async def send(self, messages: Sequence[OutgoingMessage], *, timeout_ms: int) -> SendResult:
        """Send a batch of one NORMAL topic, or exactly one message of another type."""
        ...

    async def warm_up(self) -> bool:
        """Open the connection before the first request needs it; True when the broker answered."""
        ...

    async def close(self) -> None:
        """Close connections. Safe to call twice."""
        ...


class Receiver(Protocol):
    """Receives one topic for one group.

    Raises:
        BrokerUnavailable: from `receive` and `change_invisible`, when the broker cannot be asked.
    """

    def receive(self, *, max_messages: int, invisible_s: int, wait_s: int) -> list[ReceivedMessage]:
        """Long-poll for up to `wait_s`; an empty list when nothing came. At most 32 a call."""
        ...

    def ack(self, messages: Sequence[ReceivedMessage], *, timeout_ms: int) -> list[str]:
        """Ack a batch, never raising; return the ids whose ack is not known to have worked."""
        ...

    def change_invisible(self, message: ReceivedMessage, *, invisible_s: int) -> ReceivedMessage:
        """Move the end of the invisible time; returns the message with its new handle."""
        ...

    def close(self) -> None:
        """Stop and close connections; unblocks a running `receive`. Safe to call twice."""
        ...


class Broker(Protocol):
    """A connection factory. Create clients lazily, never before a fork."""

    def producer(self) -> Producer:
        """Return a new producer."""
        ...

    def async_producer(self) -> AsyncProducer:
        """Return a new producer for the running event loop."""
        ...

    def receiver(
        self, *, group: str, topic: str, tags: Sequence[str] = (), beside: Sequence[str] = ()
    ) -> Receiver:
        """Return a new receiver: registry's group and topic names; no tags means all.

        `beside`: what other members of the group receive; all of them announce the same topics.
        """
        ...

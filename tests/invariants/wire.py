"""The broker as lists: what is stored for a group waits there until a test delivers, or loses, it.

The loop that consumes is the real one (`run_loop`, one round): it settles, splits, quarantines and
acks; what it does not ack stays, and comes again.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from django.db import connection

from messaging.broker.base import (
    FailureClass,
    OutgoingMessage,
    ReceivedMessage,
    SendOutcome,
    SendResult,
)
from messaging.consumer import Handler, run_loop
from messaging.errors import PermanentError
from messaging.inflow import LoopOptions
from messaging.topology import (
    CG_INVENTORY_COMPENSATE,
    CG_ORDER_CREATE,
    CG_ORDER_PROJECTION,
    CG_ORDER_TIMEOUT,
    CG_SETTLEMENT,
    group_spec,
)
from seckill.bootstrap import handlers

GROUPS: Final = (
    CG_ORDER_CREATE,
    CG_ORDER_PROJECTION,
    CG_ORDER_TIMEOUT,
    CG_INVENTORY_COMPENSATE,
    CG_SETTLEMENT,
)
# What may become of one send, and whether the broker then has the message.
CONFIRMED, UNKNOWN_STORED, UNKNOWN_LOST, DEFINITE = "confirmed", "stored", "lost", "definite"
_RESULTS: Final = {
    CONFIRMED: SendResult(outcome=SendOutcome.CONFIRMED),
    UNKNOWN_STORED: SendResult(outcome=SendOutcome.UNKNOWN, code="DEADLINE_EXCEEDED"),
    UNKNOWN_LOST: SendResult(outcome=SendOutcome.UNKNOWN, code="DEADLINE_EXCEEDED"),
    DEFINITE: SendResult(
        outcome=SendOutcome.DEFINITE_FAILURE, failure=FailureClass.RETRY_LATER, code="X"
    ),
}


@dataclass
class Wire:
    """Producer of everybody; `queues` holds what each group has not acked, oldest first."""

    queues: dict[str, list[ReceivedMessage]] = field(
        default_factory=lambda: {group: [] for group in GROUPS}
    )
    bodies: dict[str, bytes] = field(default_factory=dict)
    delayed: list[tuple[int, ReceivedMessage]] = field(default_factory=list)  # until when, in ms
    next_send: str = CONFIRMED  # of the next send only

    def send(self, messages: Sequence[OutgoingMessage], *, timeout_ms: int) -> SendResult:
        """Store, or not, as the test wants it; `Producer.send`."""
        fate, self.next_send = self.next_send, CONFIRMED
        for message in messages:
            first = self.bodies.setdefault(message.message_id, message.body)
            assert message.body == first, "a resend is the same bytes"
        if fate in {CONFIRMED, UNKNOWN_STORED}:
            for message in messages:
                self.store(
                    topic=message.topic,
                    message_id=message.message_id,
                    body=message.body,
                    tag=message.tag,
                    deliver_at_ms=message.deliver_at_ms or 0,
                )
        return _RESULTS[fate]

    def close(self) -> None:
        """Nothing to close."""

    def store(
        self, *, topic: str, message_id: str, body: bytes, tag: str, deliver_at_ms: int = 0
    ) -> None:
        """The broker has it: a copy for each group that takes such messages, now or later."""
        copy = ReceivedMessage(
            topic=topic,
            message_id=message_id,
            body=body,
            tag=tag,
            keys=(),
            properties={"message_id": message_id},
            delivery_attempt=0,
            receipt_handle="",
            invisible_until=0,
            stored_at_ms=int(time.time() * 1000),
        )
        if deliver_at_ms:
            self.delayed.append((deliver_at_ms, copy))
        else:
            self._show(copy)

    def turn_to(self, now_ms: int) -> None:
        """Show what was delayed until now."""
        due = [copy for at, copy in self.delayed if at <= now_ms]
        self.delayed = [(at, copy) for at, copy in self.delayed if at > now_ms]
        for copy in due:
            self._show(copy)

    def _show(self, copy: ReceivedMessage) -> None:
        for group, queue in self.queues.items():
            spec = group_spec(group)
            if spec.topic == copy.topic and (not spec.tags or copy.tag in spec.tags):
                queue.append(copy)

    def deliver(
        self,
        group: str,
        *,
        first: int = 0,
        count: int = 1,
        backwards: bool = False,
        acks_work: bool = True,
        poison: bool = False,
    ) -> int:
        """Let one member of a group receive some of its messages, and do what it does then.

        Args:
            group: who.
            first: which message, counted around.
            count: how many, from there on.
            backwards: the newest first.
            acks_work: False leaves all of them to be delivered again, to whomever.
            poison: a bug of the handler makes each of them impossible to apply.
        """
        queue = self.queues[group]
        picked = sorted({(first + n) % len(queue) for n in range(count)} if queue else ())
        for place in picked:
            queue[place] = replace(queue[place], delivery_attempt=queue[place].delivery_attempt + 1)
        batch = [
            replace(queue[place], invisible_until=time.monotonic() + 60, receipt_handle=str(place))
            for place in (reversed(picked) if backwards else picked)
        ]
        if not batch:
            return 0
        receiver = _Receiver(batch)
        handler = _Broken() if poison else handlers()[group]
        run_loop(
            group_spec(group), handler, receiver, threading.Event(), options=_OPTIONS, once=True
        )
        if acks_work:
            for place in sorted(receiver.acked, reverse=True):
                del queue[place]
        return len(receiver.acked)

    def lose(self, group: str, place: int) -> ReceivedMessage | None:
        """The broker loses a message that it had confirmed."""
        queue = self.queues[group]
        return queue.pop(place % len(queue)) if queue else None

    @property
    def waiting(self) -> int:
        return sum(len(queue) for queue in self.queues.values())


@dataclass
class AsyncWire:
    """The same broker for admission; `meanwhile` runs while its send is under way."""

    wire: Wire
    meanwhile: Callable[[], None] = lambda: None

    async def send(self, messages: Sequence[OutgoingMessage], *, timeout_ms: int) -> SendResult:
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        fate, self.wire.next_send = self.wire.next_send, CONFIRMED
        meanwhile()
        connection.close()  # an event loop has one of its own
        self.wire.next_send = fate
        return self.wire.send(messages, timeout_ms=timeout_ms)

    async def warm_up(self) -> bool:
        return True

    async def close(self) -> None:
        """Nothing to close."""


_OPTIONS: Final = LoopOptions(
    batch_max=128, invisible_s=60, min_left_s=0, wait_s=0, ack_timeout_ms=1_000, pollers=0
)


@dataclass
class _Receiver:
    batch: list[ReceivedMessage]
    acked: set[int] = field(default_factory=set)

    def receive(self, *, max_messages: int, invisible_s: int, wait_s: int) -> list[ReceivedMessage]:
        return self.batch

    def ack(self, messages: Sequence[ReceivedMessage], *, timeout_ms: int) -> list[str]:
        self.acked |= {int(message.receipt_handle) for message in messages}
        return []

    def change_invisible(self, message: ReceivedMessage, *, invisible_s: int) -> ReceivedMessage:
        return message

    def close(self) -> None:
        """Nothing to close."""


class _Broken(Handler):
    """A handler with a bug that no retry gets around."""

    def handle(self, messages: Sequence[ReceivedMessage]) -> Sequence[None]:
        raise PermanentError("HANDLER_BUG")

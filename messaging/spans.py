"""What the spans of messages are: send, delivery, and the steps inside a delivery.

A delivery is the child of the send that caused it; a resend links to the send before it, a
redelivery to the delivery before it, a replay to the first send of the original.
Source: docs/traces.md.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import telemetry
from messaging.attempt import Handler, Settled
from messaging.broker.base import OutgoingMessage, ReceivedMessage, SendOutcome, SendResult
from messaging.disposition import Decision, Disposition
from telemetry import Context, Span, SpanKind

_FAILED = frozenset({Disposition.RETRY, Disposition.QUARANTINE})


class _Handling(threading.local):
    """The sampled deliveries that this thread is handling, as spans of their traces."""

    deliveries: Sequence[Context] = ()


_handling = _Handling()


def sent(messages: Sequence[OutgoingMessage], result: SendResult, *, seconds: float) -> None:
    """Write the span of one send call for each sampled message in it."""
    end_ns = time.time_ns()
    for message in messages:
        properties = message.properties
        purchase = _sampled(properties)
        if purchase is None:
            continue
        replay_id, attempt = _replay(properties), _attempt(properties)
        own = _send_id(message.message_id, replay_id, attempt)
        telemetry.emit(
            Span(
                name=f"send {message.topic}",
                context=purchase.at(own),
                parent_id=purchase.span_id,
                start_ns=end_ns - int(seconds * 1e9),
                end_ns=end_ns,
                kind=SpanKind.PRODUCER,
                attributes={
                    **_ids(message.message_id, message.keys),
                    "messaging.system": "rocketmq",
                    "messaging.destination.name": message.topic,
                    "messaging.operation.name": "send",
                    "messaging.batch.message_count": len(messages),
                    "seckill.send_attempt": attempt,
                    "seckill.send_outcome": result.outcome.value,
                    **({"seckill.replay_id": replay_id} if replay_id else {}),
                },
                links=_earlier_sends(purchase, message.message_id, replay_id, attempt),
                error="" if result.outcome is SendOutcome.CONFIRMED else result.code or "UNKNOWN",
            )
        )


def settled(items: Sequence[Settled], *, group: str, seconds: float) -> None:
    """Write the span of each sampled delivery that was decided."""
    end_ns = time.time_ns()
    for item in items:
        message, decision = item.message, item.decision
        purchase = _sampled(message.properties)
        if purchase is None:
            continue
        properties = message.properties
        replay_id = _replay(properties)
        links: list[Context] = []
        if message.delivery_attempt > 1:
            links.append(purchase.at(_delivery_id(message, group, message.delivery_attempt - 1)))
        if replay_id:
            links.append(purchase.at(_send_id(message.message_id, "", 1)))
        telemetry.emit(
            Span(
                name=f"process {message.topic}",
                context=purchase.at(_delivery_id(message, group, message.delivery_attempt)),
                parent_id=_send_id(message.message_id, replay_id, _attempt(properties)),
                start_ns=end_ns - int(seconds * 1e9),
                end_ns=end_ns,
                kind=SpanKind.CONSUMER,
                attributes={
                    **_ids(message.message_id, message.keys),
                    "messaging.system": "rocketmq",
                    "messaging.destination.name": message.topic,
                    "messaging.operation.name": "process",
                    "messaging.consumer.group.name": group,
                    "seckill.delivery_attempt": message.delivery_attempt,
                    "seckill.decision": decision.disposition.value,
                    **({"seckill.replay_id": replay_id} if replay_id else {}),
                },
                links=links,
                error=decision.reason if decision.disposition in _FAILED else "",
            )
        )


class TracedHandler:
    """A handler whose steps know which deliveries they are part of."""

    def __init__(self, handler: Handler, *, group: str) -> None:
        self._handler = handler
        self._group = group

    def handle(self, messages: Sequence[ReceivedMessage]) -> Sequence[Decision]:
        """Handle the batch as the wrapped handler does."""
        if not telemetry.enabled():
            return self._handler.handle(messages)
        _handling.deliveries = [
            purchase.at(_delivery_id(message, self._group, message.delivery_attempt))
            for message in messages
            if (purchase := _sampled(message.properties))
        ]
        try:
            return self._handler.handle(messages)
        finally:
            _handling.deliveries = ()


@contextmanager
def step(name: str) -> Iterator[None]:
    """Write a span of what happens inside, for each sampled delivery that is being handled."""
    deliveries = _handling.deliveries
    if not deliveries:
        yield
        return
    start_ns, error = time.time_ns(), ""
    try:
        yield
    except Exception as raised:
        error = type(raised).__name__
        raise
    finally:
        end_ns = time.time_ns()
        for delivery in deliveries:
            telemetry.emit(
                Span(
                    name=name,
                    context=delivery.at(telemetry.span_id(delivery.span_id, name, start_ns)),
                    parent_id=delivery.span_id,
                    start_ns=start_ns,
                    end_ns=end_ns,
                    error=error,
                    attributes={"messaging.batch.message_count": len(deliveries)},
                )
            )


def _sampled(properties: Mapping[str, str]) -> Context | None:
    """Return the purchase's first span, when the purchase is recorded."""
    return telemetry.recorded(properties.get("traceparent", ""))


def _replay(properties: Mapping[str, str]) -> str:
    return properties.get("replay_id", "")


def _attempt(properties: Mapping[str, str]) -> int:
    text = properties.get("send_attempt", "")
    return int(text) if text.isascii() and text.isdigit() else 1


def _send_id(message_id: str, replay_id: str, attempt: int) -> int:
    return telemetry.span_id("send", message_id, replay_id, attempt)


def _delivery_id(message: ReceivedMessage, group: str, attempt: int) -> int:
    replay_id = _replay(message.properties)
    return telemetry.span_id("delivery", group, message.message_id, replay_id, attempt)


def _earlier_sends(
    purchase: Context, message_id: str, replay_id: str, attempt: int
) -> list[Context]:
    if attempt > 1:
        return [purchase.at(_send_id(message_id, replay_id, attempt - 1))]
    return [purchase.at(_send_id(message_id, "", 1))] if replay_id else []


def _ids(message_id: str, keys: Sequence[str]) -> dict[str, str]:
    found = {"messaging.message.id": message_id}
    for key in keys:
        if key.startswith("rsv_"):
            found["seckill.reservation_id"] = key
        elif key.startswith("ord_"):
            found["seckill.order_id"] = key
    return found

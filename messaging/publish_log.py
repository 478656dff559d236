"""One place for what every producer tells of a send: counts, log lines, spans.

A send that is not confirmed gets a line for each of its first messages, with every id and the class
of the failure, never the payload; of a large batch the others are named together in one more, for
lines cost most when the broker is slow and all sends fail. Confirmed ones are DEBUG.
"""

import logging
from collections.abc import Sequence
from typing import Any, Final

import structlog

import telemetry
from messaging import metrics, spans
from messaging.broker.base import OutgoingMessage, SendOutcome, SendResult
from messaging.facts import read_facts
from messaging.trace_id import trace_id

_LEVEL: Final = {
    SendOutcome.CONFIRMED: logging.DEBUG,
    SendOutcome.UNKNOWN: logging.WARNING,
    SendOutcome.DEFINITE_FAILURE: logging.ERROR,
}

_LINES: Final = 4  # of one send; what they say beside the ids is the same for all

log = structlog.get_logger(__name__)
_stdlib: Final = logging.getLogger(__name__)


def record_send(messages: Sequence[OutgoingMessage], result: SendResult, *, seconds: float) -> None:
    """Count, log and trace one send call.

    Args:
        messages: what the call carried, at least one, all of one topic.
        result: what is known after it.
        seconds: how long it took.

    Cost: three counters for the whole call; at most five lines when it is not confirmed.
    """
    topic = messages[0].topic
    metrics.PUBLISH.labels(topic, result.outcome.value).inc(len(messages))
    metrics.PUBLISH_LATENCY.labels(topic).observe(seconds)
    if result.outcome is SendOutcome.UNKNOWN:
        metrics.PUBLISH_UNKNOWN.labels(topic).inc(len(messages))
    level = _LEVEL[result.outcome]
    if _stdlib.isEnabledFor(level):
        confirmed = result.outcome is SendOutcome.CONFIRMED
        event = "message_sent" if confirmed else "message_not_sent"
        told = len(messages) if confirmed else _LINES
        for message in messages[:told]:
            log.log(level, event, **fields(message, result, seconds=seconds))
        if others := [message.message_id for message in messages[told:]]:
            log.log(level, "messages_not_sent", message_ids=others, topic=topic, code=result.code)
    if telemetry.enabled():
        spans.sent(messages, result, seconds=seconds)


def fields(message: OutgoingMessage, result: SendResult, *, seconds: float) -> dict[str, Any]:
    """Return the fields of one line.

    The broker keeps the id that we give it, so `broker_message_id` is known exactly when it said
    that it stored the message.
    """
    facts = read_facts(message.body, message.keys)
    confirmed = result.outcome is SendOutcome.CONFIRMED
    return {
        "message_id": message.message_id,
        "reservation_id": facts.reservation_id,
        "request_id": _key(message, "req_"),
        "order_id": _key(message, "ord_"),
        "activity_id": facts.activity_id,
        "sku_id": facts.sku_id,
        "user_id": facts.user_id,
        "topic": message.topic,
        "tag": message.tag,
        "send_attempt": int(message.properties.get("send_attempt", "1")),
        "send_outcome": result.outcome.value,
        "broker_message_id": message.message_id if confirmed else None,
        "send_latency_ms": round(seconds * 1000, 1),
        "error_class": result.failure.value if result.failure else "",
        "trace_id": trace_id(message.properties.get("traceparent", "")),
        "code": result.code,
        "detail": result.detail,
    }


def _key(message: OutgoingMessage, prefix: str) -> str:
    return next((key for key in message.keys if key.startswith(prefix)), "")

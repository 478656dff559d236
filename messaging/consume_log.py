"""The log line of a delivery: every id and decision, never the payload.

Successes are DEBUG (thousands a second), duplicates and rejects INFO; retries, quarantine and
failed acks WARNING.
"""

import logging
from collections.abc import Sequence
from typing import Any, Final

import structlog

from messaging.attempt import Settled
from messaging.broker.base import ReceivedMessage
from messaging.disposition import Disposition
from messaging.trace_id import trace_id

_LEVEL: Final = {
    Disposition.ACK_DONE: logging.DEBUG,
    Disposition.ACK_DUPLICATE: logging.INFO,
    Disposition.ACK_REJECTED: logging.INFO,
    Disposition.RETRY: logging.WARNING,
    Disposition.QUARANTINE: logging.WARNING,
}
_INBOX: Final = {
    Disposition.ACK_DONE: "NEW",
    Disposition.ACK_DUPLICATE: "KNOWN",
    Disposition.ACK_REJECTED: "NEW",
    Disposition.RETRY: "NONE",
    Disposition.QUARANTINE: "NONE",
}

log = structlog.get_logger(__name__)
_stdlib: Final = logging.getLogger(__name__)


def log_settled(
    settled: Sequence[Settled],
    *,
    group: str,
    tx_latency_ms: float,
    failed_acks: frozenset[str] | None,
) -> None:
    """Log deliveries.

    Args:
        settled: the deliveries.
        group: registry name.
        tx_latency_ms: how long their batch took, in milliseconds.
        failed_acks: ids whose ack is not known to have worked; None when they were left un-acked.
    """
    for item in settled:
        failed = failed_acks is not None and item.message.message_id in failed_acks
        level = logging.WARNING if failed else _LEVEL[item.decision.disposition]
        if not _stdlib.isEnabledFor(level):
            continue
        ack_result = "LEFT" if failed_acks is None else "FAILED" if failed else "OK"
        log.log(
            level,
            "message_consumed",
            **fields(item, group=group, tx_latency_ms=tx_latency_ms, ack_result=ack_result),
        )


def fields(item: Settled, *, group: str, tx_latency_ms: float, ack_result: str) -> dict[str, Any]:
    """Return the fields of one line; queue and offset are unknown to a POP consumer."""
    message = item.message
    disposition = item.decision.disposition
    return {
        "message_id": message.message_id,
        "reservation_id": _key(message, "rsv_"),
        "order_id": _key(message, "ord_"),
        "consumer_group": group,
        "topic": message.topic,
        "queue": None,
        "offset": None,
        "delivery_attempt": message.delivery_attempt,
        "schema_version": message.properties.get("schema_version", ""),
        "decision": disposition.value,
        "inbox_result": _INBOX[disposition],
        "order_result": item.decision.reason,
        "tx_latency_ms": round(tx_latency_ms, 1),
        "ack_result": ack_result,
        "trace_id": trace_id(message.properties.get("traceparent", "")),
    }


def _key(message: ReceivedMessage, prefix: str) -> str:
    return next((key for key in message.keys if key.startswith(prefix)), "")

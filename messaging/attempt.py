"""One attempt at a batch: handle it, and sort what went wrong. Nothing is acked or stored here.

A batch that fails for one member is handled again one by one; what lost a race for a lock is tried
three times in place first; a transient failure decides nothing and is raised as `Outage`.
"""

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, assert_never

import structlog

from messaging import metrics
from messaging.broker.base import ReceivedMessage
from messaging.disposition import Decision, Disposition, quarantine, retry
from messaging.sqlstate import ErrorClass, classify, reason_of, sqlstate_of

TRIES_IN_PLACE: Final = 3
_PAUSE_S: Final = 0.02

log = structlog.get_logger(__name__)


class Handler(Protocol):
    """What a group does with its messages."""

    def handle(self, messages: Sequence[ReceivedMessage]) -> Sequence[Decision]:
        """Apply a batch and return one decision for each message, in the same order.

        An exception means that the whole batch was rolled back. See `sqlstate.classify` for what
        each kind leads to.
        """
        ...


class Outage(Exception):
    """A transient failure: nothing of these messages was decided. The cause is attached."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settled:
    """A message and what was decided about it, committed."""

    message: ReceivedMessage
    decision: Decision


def settle(
    batch: Sequence[ReceivedMessage], *, handler: Handler, max_retries: int
) -> Iterator[list[Settled]]:
    """Handle a batch; yield what was committed together, as soon as it is.

    Args:
        batch: at least one message, no id twice unless the broker delivered it twice.
        handler: the group's.
        max_retries: the group's limit; at delivery `max_retries + 1` RETRY becomes QUARANTINE.

    Raises:
        Outage: nothing of the rest was decided; what was yielded before stands.
    """
    try:
        decisions = _in_place(batch, handler)
    except Exception as error:
        kind = classify(error)
        if kind in (ErrorClass.TRANSIENT, ErrorClass.CONTENTION):
            raise Outage(reason_of(error)) from error
        if len(batch) > 1:
            log.info("batch_split", messages=len(batch), error_class=kind, reason=reason_of(error))
            for message in batch:
                yield from settle([message], handler=handler, max_retries=max_retries)
            return
        log.warning(
            "message_failed",
            message_id=batch[0].message_id,
            topic=batch[0].topic,
            delivery_attempt=batch[0].delivery_attempt,
            error_class=kind,
            reason=reason_of(error),
            exc_info=kind is ErrorClass.UNKNOWN,
        )
        decisions = [_verdict(kind, error)]
    yield [
        Settled(message=message, decision=_bounded(decision, message, max_retries))
        for message, decision in zip(batch, decisions, strict=True)
    ]


def _in_place(batch: Sequence[ReceivedMessage], handler: Handler) -> Sequence[Decision]:
    """Call the handler; up to three times while only a race was lost."""
    for attempt in range(1, TRIES_IN_PLACE + 1):
        try:
            decisions = handler.handle(batch)
        except Exception as error:
            kind = classify(error)
            raced = kind is ErrorClass.CONTENTION or (
                kind is ErrorClass.CONFLICT and len(batch) == 1
            )
            if sqlstate_of(error) == "40P01":
                metrics.PG_DEADLOCK.inc()
            if not raced or attempt == TRIES_IN_PLACE:
                raise
            metrics.PG_SERIALIZATION_RETRY.labels(sqlstate_of(error)).inc()
            time.sleep(_PAUSE_S * attempt * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
        else:
            if len(decisions) != len(batch):
                raise TypeError(f"{len(decisions)} decisions for {len(batch)} messages")
            return decisions
    raise AssertionError("unreachable: the last try returns or raises")


def _verdict(kind: ErrorClass, error: Exception) -> Decision:
    """Decide about a message that failed alone."""
    match kind:
        case ErrorClass.PERMANENT:
            return quarantine(reason_of(error), type(error).__name__)
        case ErrorClass.UNKNOWN | ErrorClass.CONFLICT:
            return retry(reason_of(error), type(error).__name__)
        case ErrorClass.TRANSIENT | ErrorClass.CONTENTION:
            raise AssertionError("transient failures are raised as Outage")
        case _:
            assert_never(kind)


def _bounded(decision: Decision, message: ReceivedMessage, max_retries: int) -> Decision:
    """At the last delivery a retry would hand the message to the broker's dead letters."""
    last = message.delivery_attempt > max_retries
    if decision.disposition is Disposition.RETRY and last:
        return quarantine(decision.reason or "RETRIES_EXHAUSTED", decision.detail)
    return decision

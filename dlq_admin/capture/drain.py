"""The drain: a thread for each dead letter topic, one for our own quarantine rows.

All receivers belong to one group and announce the same topics. Acked is what is committed; an
outage of the database stops the receiving until it answers again.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

import structlog
from django.conf import settings
from django.db import close_old_connections, connection

from dlq_admin.capture import dead_letters, metrics, own_rows, settled
from dlq_admin.models.ticket import OPEN, Ticket
from dlq_admin.states import Severity
from messaging.backpressure import Backoff
from messaging.broker.base import Broker, Receiver
from messaging.errors import BrokerUnavailable
from messaging.pulse import Pulse
from messaging.topology import CG_DLQ_DRAIN, GroupSpec, dlq_topic, enabled_groups
from messaging.worker import Loop, StopSignal

log = structlog.get_logger(__name__)

_TICK_S: Final = 1.0
_MISSED_S: Final = 20.0
_GAUGES_S: Final = 10.0
_BATCH: Final = 32


def drain_loops(broker: Broker, *, once: bool = False) -> list[Loop]:
    """Return the loops of a drain process: dead letter topics of the registry, own rows."""
    groups = enabled_groups()
    topics = [dlq_topic(group.name) for group in groups]

    def letters(group: GroupSpec) -> Callable[[StopSignal, Pulse], None]:
        def run(stop: StopSignal, pulse: Pulse) -> None:
            receiver = broker.receiver(
                group=CG_DLQ_DRAIN, topic=dlq_topic(group.name), beside=topics
            )
            drain_topic(group.name, receiver, stop, pulse, once=once)

        return run

    return [
        Loop(name=f"dlq-{group.name.removeprefix('CG_SECKILL_').lower()}", run=letters(group))
        for group in groups
    ] + [Loop(name="own-rows", run=lambda stop, pulse: drain_own(stop, pulse, once=once))]


def drain_topic(
    group: str, receiver: Receiver, stop: StopSignal, pulse: Pulse, *, once: bool = False
) -> None:
    """Bring the dead letters of one group to the desk until `stop` is set."""
    if not once:  # a long poll must not outlast the signal
        threading.Thread(target=_close_at, args=(stop, receiver), daemon=True).start()
    backoff = Backoff(first_s=0.1, cap_s=5.0)
    try:
        while not stop.is_set():
            pulse.touch()
            try:
                drain_once(group, receiver)
                backoff.reset()
            except Exception as error:
                if stop.is_set():
                    return
                metrics.DRAIN_FAILURE.labels("receive").inc()
                known = isinstance(error, BrokerUnavailable)
                (log.warning if known else log.exception)(
                    "dlq_drain_failed", consumer_group=group, error=type(error).__name__
                )
                if once:
                    raise
                stop.wait(backoff.next_s())
            if once:
                return
    finally:
        receiver.close()


def drain_once(group: str, receiver: Receiver) -> int:
    """Receive once, store, ack; returns how many came. Nothing is acked that is not committed."""
    messages = receiver.receive(
        max_messages=_BATCH,
        invisible_s=settings.SECKILL_INVISIBLE_S,
        wait_s=settings.SECKILL_LONG_POLL_S,
    )
    if not messages:
        return 0
    close_old_connections()
    try:
        dead_letters.capture(group, messages)
    finally:
        connection.close()  # letters are rare: no connection is kept for each topic
    metrics.CAPTURED.labels("DLQ").inc(len(messages))
    receiver.ack(messages, timeout_ms=settings.SECKILL_ACK_TIMEOUT_MS)
    log.info("dead_letters_captured", consumer_group=group, messages=len(messages))
    return len(messages)


def drain_own(stop: StopSignal, pulse: Pulse, *, once: bool = False) -> None:
    """Bring our own quarantine rows to the desk, close what settled, keep the gauges."""
    after, page, missed_at, gauges_at = 0, 0, 0.0, 0.0
    while not stop.is_set():
        pulse.touch()
        close_old_connections()
        try:
            taken, after = own_rows.capture_new(after=after)
            now = time.monotonic()
            if once or now - missed_at >= _MISSED_S:
                taken += own_rows.capture_missed()
                missed_at = now
            metrics.CAPTURED.labels("CONSUMER").inc(taken)
            ended, page = settled.settle_open(after=page)
            metrics.SETTLED.inc(ended)
            if once or now - gauges_at >= _GAUGES_S:
                set_gauges()
                gauges_at = now
        except Exception as error:
            metrics.DRAIN_FAILURE.labels("own").inc()
            log.exception("dlq_own_rows_failed", error=type(error).__name__)
            connection.close()
            taken = 0
            if once:
                raise
        if once:
            return
        if taken < own_rows.PAGE:
            stop.wait(_TICK_S)


def set_gauges() -> None:
    """Set the number of open tickets. One statement on a partial index."""
    severities = list(Ticket.objects.filter(OPEN).values_list("severity", flat=True))
    for severity in Severity:
        metrics.TICKETS_OPEN.labels(severity.value).set(severities.count(severity.value))


def _close_at(stop: StopSignal, receiver: Receiver) -> None:
    stop.wait()
    receiver.close()

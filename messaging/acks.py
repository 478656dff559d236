"""Batch acks in threads of their own, after the commit: the loop never waits for them for long.

A failed ack changes nothing but a counter: the business result stands, the redelivery hits the
inbox (or the guarded update) and is acked then.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import structlog

from messaging import metrics
from messaging.attempt import Settled
from messaging.broker.base import Receiver
from messaging.consume_log import log_settled

_THREADS: Final = 2
_WAITING: Final = 6  # batches; beyond it the loop waits, so that acks cannot pile up

log = structlog.get_logger(__name__)


class Acks:
    """Acks what was settled, in the background, bounded."""

    def __init__(self, receiver: Receiver, *, group: str, timeout_ms: int) -> None:
        self._receiver = receiver
        self._group = group
        self._timeout_ms = timeout_ms
        self._room = threading.BoundedSemaphore(_WAITING)
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="ack")

    def submit(
        self, done: Sequence[Settled], *, left: Sequence[Settled], tx_latency_ms: float
    ) -> None:
        """Ack what is done and log both; waits while too many acks are on their way."""
        self._room.acquire()
        try:
            self._pool.submit(self._ack, done, left, tx_latency_ms)
        except RuntimeError:  # the pool is closed: nothing is lost, the messages come back
            self._room.release()

    def close(self) -> None:
        """Finish the acks that were submitted; each is bounded by its own deadline."""
        self._pool.shutdown(wait=True)

    def _ack(self, done: Sequence[Settled], left: Sequence[Settled], tx_latency_ms: float) -> None:
        failed: frozenset[str] = frozenset()
        try:
            if done:
                messages = [item.message for item in done]
                failed = frozenset(self._receiver.ack(messages, timeout_ms=self._timeout_ms))
            if failed:
                metrics.ACK_FAILURE.labels(self._group).inc(len(failed))
            log_settled(done, group=self._group, tx_latency_ms=tx_latency_ms, failed_acks=failed)
            log_settled(left, group=self._group, tx_latency_ms=tx_latency_ms, failed_acks=None)
        except Exception:
            metrics.ACK_FAILURE.labels(self._group).inc(len(done))
            log.exception("ack_crashed", consumer_group=self._group, messages=len(done))
        finally:
            self._room.release()

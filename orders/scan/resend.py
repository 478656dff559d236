"""Sends CREATE_ORDER messages of stored reservations again: same ids, same bytes, in batches."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from django.conf import settings

from inventory.contracts import Reservation
from messaging.broker import broker
from messaging.broker.base import OutgoingMessage, Producer, SendResult
from messaging.envelope import SCHEMA_VERSION
from messaging.publish_log import record_send
from messaging.topology import ORDER_CREATE, TAG_CREATE_ORDER
from orders import metrics
from orders.contracts import create_order_body

BATCH: Final = 64  # one batch is stored whole or not at all
THREADS: Final = 2


def create_order_message(reservation: Reservation, *, send_attempt: int) -> OutgoingMessage:
    """Build the message of a stored reservation; only `send_attempt` differs between attempts."""
    return OutgoingMessage(
        topic=ORDER_CREATE,
        message_id=reservation.message_id,
        body=create_order_body(reservation),
        tag=TAG_CREATE_ORDER,
        keys=(reservation.reservation_id, reservation.order_id, reservation.request_id),
        properties={
            "message_id": reservation.message_id,
            "origin_topic": ORDER_CREATE,
            "schema_version": str(SCHEMA_VERSION),
            "traceparent": reservation.traceparent,
            "send_attempt": str(send_attempt),
        },
    )


class Resender:
    """A fixed pool of threads on one producer."""

    def __init__(self, producer: Producer | None = None) -> None:
        self._lock = threading.Lock()
        self._producer = producer
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="resend")

    def send(self, reservations: Sequence[Reservation]) -> list[tuple[Reservation, SendResult]]:
        """Send all, a batch a time; every reservation comes back with its batch's result.

        Cost: one RPC for each 64 messages, bounded by SECKILL_PUBLISH_TIMEOUT_MS.
        """
        batches = [reservations[i : i + BATCH] for i in range(0, len(reservations), BATCH)]
        results = list(self._pool.map(self._send, batches))
        return [
            (reservation, result)
            for batch, result in zip(batches, results, strict=True)
            for reservation in batch
        ]

    def close(self) -> None:
        """Wait for what is being sent, then close the connection."""
        self._pool.shutdown()
        if self._producer is not None:
            self._producer.close()

    def _send(self, batch: Sequence[Reservation]) -> SendResult:
        messages = [create_order_message(r, send_attempt=r.send_attempt + 1) for r in batch]
        started = time.monotonic()
        result = self._connected().send(messages, timeout_ms=settings.SECKILL_PUBLISH_TIMEOUT_MS)
        # A definite failure is only told: an earlier attempt may have been stored, so nothing is
        # ever released for it.
        record_send(messages, result, seconds=time.monotonic() - started)
        metrics.RESEND.labels(outcome=result.outcome.value).inc(len(batch))
        return result

    def _connected(self) -> Producer:
        with self._lock:
            if self._producer is None:
                self._producer = broker().producer()
            return self._producer

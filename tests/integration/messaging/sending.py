"""A producer that records its calls, and the rows it was called for."""

import threading
from collections.abc import Callable, Sequence

from django.db import connection

from messaging.broker.base import OutgoingMessage, SendOutcome, SendResult
from messaging.models import OutboxRow

CONFIRMED = SendResult(outcome=SendOutcome.CONFIRMED)
UNKNOWN = SendResult(outcome=SendOutcome.UNKNOWN, code="50001")


class Producer:
    """Records calls; `answer` decides each of them."""

    def __init__(
        self, answer: Callable[[Sequence[OutgoingMessage]], SendResult] = lambda m: CONFIRMED
    ) -> None:
        self.answer = answer
        self.calls: list[list[OutgoingMessage]] = []
        self._lock = threading.Lock()

    def send(self, messages: Sequence[OutgoingMessage], *, timeout_ms: int) -> SendResult:
        assert connection.connection is None or not connection.in_atomic_block
        with self._lock:
            self.calls.append(list(messages))
        return self.answer(messages)

    def close(self) -> None:
        pass

    @property
    def ids(self) -> list[str]:
        return [m.message_id for call in self.calls for m in call]


def rows() -> list[OutboxRow]:
    return list(OutboxRow.objects.order_by("id"))

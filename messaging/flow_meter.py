"""How far a group is behind and how fast it drains, as one of its members sees it (no I/O)."""

import time
from collections import deque
from collections.abc import Callable, Sequence

from messaging.broker.base import ReceivedMessage

_WINDOW_S = 5.0


class FlowMeter:
    """Belongs to one loop thread.

    Lag is the age of first deliveries when their handling begins (a redelivery says how long its
    invisible time was, not how long the queue is). While nothing can be received it grows.

    Args:
        quiet_s: after so long without news the lag is taken to grow.
        monotonic: seconds, for durations.
        now_ms: epoch milliseconds, to compare with the broker's store time.
    """

    def __init__(
        self,
        *,
        quiet_s: float,
        monotonic: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._quiet_s = quiet_s
        self._monotonic = monotonic
        self._now_ms = now_ms
        self._lag_s = 0.0
        self._at = monotonic()
        self._settled: deque[tuple[float, int]] = deque()

    def took(self, messages: Sequence[ReceivedMessage]) -> None:
        """Messages are about to be handled."""
        stored = [m.stored_at_ms for m in messages if m.delivery_attempt == 1 and m.stored_at_ms]
        if stored:
            self._lag_s = max(0.0, (self._now_ms() - min(stored)) / 1000)
        self._at = self._monotonic()

    def idle(self) -> None:
        """The broker was asked and had nothing."""
        self._lag_s = 0.0
        self._at = self._monotonic()

    def settled(self, messages: int) -> None:
        """So many messages came to an end."""
        self._settled.append((self._monotonic(), messages))

    @property
    def lag_s(self) -> float:
        """Seconds that this member is behind."""
        silent_s = self._monotonic() - self._at
        return self._lag_s + max(0.0, silent_s - self._quiet_s)

    @property
    def drain_per_s(self) -> float:
        """Messages settled per second over the last 5 s."""
        since = self._monotonic() - _WINDOW_S
        while self._settled and self._settled[0][0] < since:
            self._settled.popleft()
        return sum(count for _, count in self._settled) / _WINDOW_S

"""How far a group is behind and how fast it drains, as one of its members sees it (no I/O)."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from messaging.broker.base import ReceivedMessage

_WINDOW_S = 5.0
_TIMES_EVERY_S = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class _Unit:
    at: float
    messages: int
    seconds: float
    waited_s: float
    full: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitTimes:
    """Units of work of the last 5 s.

    `busy_per_s` is what the member would settle if messages always waited: messages per second of
    work, of units that were at least a quarter full (small ones cost more for each message).
    """

    p95_ms: float = 0.0
    p99_ms: float = 0.0
    pool_wait_p95_ms: float = 0.0
    busy_per_s: float = 0.0


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
        self._units: deque[_Unit] = deque()
        self._times = UnitTimes()
        self._times_at = float("-inf")

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

    def worked(
        self, *, messages: int, batch_max: int, seconds: float, waited_s: float = 0.0
    ) -> None:
        """A unit of work ended.

        Args:
            messages: that it handled.
            batch_max: how many it might have had.
            seconds: from its first statement to its commit.
            waited_s: for a connection, before.
        """
        self._units.append(
            _Unit(
                at=self._monotonic(),
                messages=messages,
                seconds=seconds,
                waited_s=waited_s,
                full=4 * messages >= batch_max,
            )
        )

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

    def times(self) -> UnitTimes:
        """Return how long units of work took; up to half a second old."""
        now = self._monotonic()
        if now - self._times_at >= _TIMES_EVERY_S:
            self._times_at = now
            while self._units and self._units[0].at < now - _WINDOW_S:
                self._units.popleft()
            self._times = _times_of(list(self._units))
        return self._times


def _times_of(units: Sequence[_Unit]) -> UnitTimes:
    if not units:
        return UnitTimes()
    seconds = sorted(unit.seconds for unit in units)
    full = [unit for unit in units if unit.full]
    full_s = sum(unit.seconds for unit in full)
    return UnitTimes(
        p95_ms=_percentile(seconds, 0.95) * 1000,
        p99_ms=_percentile(seconds, 0.99) * 1000,
        pool_wait_p95_ms=_percentile(sorted(unit.waited_s for unit in units), 0.95) * 1000,
        busy_per_s=sum(unit.messages for unit in full) / full_s if full_s > 0 else 0.0,
    )


def _percentile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

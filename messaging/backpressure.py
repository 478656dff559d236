"""When to wait, when to stop, when to try again: rules without I/O and without clocks of their own.

Every rule is bounded: a wait never grows past its cap, a breaker always lets a probe through.
"""

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Final

PROBE_CAP_S: Final = 5.0
LANE_TIMEOUTS_LAG_S: Final = 1.0


@dataclass(slots=True)
class Backoff:
    """Waits that double up to a cap, each with up to half of it as jitter.

    Args:
        first_s: the first wait, in seconds.
        cap_s: no wait is longer.
        rng: source of the jitter.
    """

    first_s: float = 0.05
    cap_s: float = PROBE_CAP_S
    rng: random.Random = field(default_factory=random.Random)
    failures: int = 0

    def next_s(self) -> float:
        """Return the next wait in seconds and count a failure."""
        wait = backoff_s(self.failures, first_s=self.first_s, cap_s=self.cap_s)
        self.failures += 1
        return wait * self.rng.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Start again from the first wait, after a success."""
        self.failures = 0


def backoff_s(failures: int, *, first_s: float, cap_s: float) -> float:
    """Return the wait after so many earlier failures, without jitter."""
    return min(cap_s, first_s * 2.0 ** min(failures, 30))


@dataclass(slots=True)
class IdleWait:
    """The relay's wake-up rule: a full claim loops at once, else 100 ms, doubling to 250 ms."""

    first_s: float = 0.1
    cap_s: float = 0.25
    empty: int = 0

    def after(self, *, claimed: int, limit: int) -> float:
        """Return how long to sleep after a claim of so many rows out of `limit`."""
        if claimed >= limit:
            self.empty = 0
            return 0.0
        if claimed:
            self.empty = 0
        wait = backoff_s(self.empty, first_s=self.first_s, cap_s=self.cap_s)
        self.empty += 1
        return wait


def timeouts_must_wait(*, order_members: int, order_lag_s: float) -> bool:
    """Tell whether cancel triggers wait: while live members of the order group lag.

    Without a live member nobody competes for the database, so nothing waits.
    """
    return order_members > 0 and order_lag_s > LANE_TIMEOUTS_LAG_S


@dataclass(slots=True)
class TopicBreaker:
    """Stops sending to a topic after failures in a row; then one probe at a time, ever later.

    Not thread-safe: the owner holds a lock.

    Args:
        threshold: failures in a row that open it.
        first_s: seconds until the first probe.
        cap_s: longest time between probes.
    """

    threshold: int = 3
    first_s: float = 0.2
    cap_s: float = PROBE_CAP_S
    failures: int = 0
    retry_at: float = 0.0

    @property
    def is_open(self) -> bool:
        """True from the failure that opened it until a success."""
        return self.failures >= self.threshold

    def allows(self, now_s: float) -> bool:
        """Tell whether something may be sent: all when closed, a probe when its time has come."""
        return not self.is_open or now_s >= self.retry_at

    def begin_probe(self, now_s: float) -> None:
        """Keep others from probing while this probe is on its way."""
        if self.is_open:
            self.retry_at = now_s + self.cap_s

    def probe_was_moot(self, now_s: float) -> None:
        """The probe told nothing about the topic: the next need not wait."""
        if self.is_open:
            self.retry_at = now_s

    def succeeded(self) -> None:
        """Close it."""
        self.failures = 0

    def failed(self, now_s: float) -> None:
        """Count a failure; past the threshold the next probe is later each time."""
        self.failures += 1
        if self.is_open:
            over = self.failures - self.threshold
            self.retry_at = now_s + backoff_s(over, first_s=self.first_s, cap_s=self.cap_s)


@dataclass(slots=True)
class QuarantineBreaker:
    """Trips when quarantine becomes the rule: a bad deploy must not divert the whole sale.

    Args:
        in_a_row: so many quarantined messages without one success trip it.
        share: so large a share of the last `window` messages trips it.
        window: how many messages are looked back on, and must have been seen.
    """

    in_a_row: int = 20
    share: float = 0.5
    window: int = 100
    _run: int = 0
    _recent: deque[bool] = field(default_factory=deque)

    def saw(self, *, quarantined: bool) -> bool:
        """Count one settled message; True when the group must be paused now."""
        self._run = self._run + 1 if quarantined else 0
        self._recent.append(quarantined)
        if len(self._recent) > self.window:
            self._recent.popleft()
        full = len(self._recent) == self.window
        return self._run >= self.in_a_row or (
            full and sum(self._recent) >= self.share * self.window and quarantined
        )

    def reset(self) -> None:
        """Forget everything, after an operator resumed the group."""
        self._run = 0
        self._recent.clear()

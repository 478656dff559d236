"""How fast buyers may ask: a bucket for each user, a bucket for this process (no I/O).

The per-user limit is by user, never by address: a whole venue may stand behind one address.
Memory is bounded: a bucket that was idle long enough to be full again need not be remembered.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from django.conf import settings


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What admission may let in now: the settings' numbers, or the governor's.

    `entry_rate` is this process's share in requests/s, 0 for no limit; `entry_burst` how many may
    come at once after a quiet time, 0 for a tenth of a second's. `open` False fails closed; sales
    in `busy` take nothing new. Who holds a reservation is answered all the same.
    """

    user_rate: float
    entry_rate: float
    entry_burst: float = 0.0
    open: bool = True
    busy: frozenset[int] = frozenset()

    def refusal(self, activity_id: int) -> str:
        """Return the problem of whoever wants something new now; empty when he may."""
        if not self.open:
            return "FAIL_CLOSED"
        return "BUSY" if activity_id in self.busy else ""


def static_limits() -> Limits:
    """Return the limits of the settings, the global rate shared among the web processes."""
    return Limits(
        user_rate=settings.SECKILL_USER_RATE,
        entry_rate=settings.SECKILL_ENTRY_RATE / max(1, settings.SECKILL_WEB_PROCESSES),
    )


class UserBuckets:
    """Token buckets by user: `rate` a second, bursts up to one second's worth (at least 1).

    Two generations of a second or more each: what is in neither has been idle for longer than
    a bucket takes to fill, so forgetting it changes nothing. A generation holds at most `limit`
    users; beyond it a new one begins early, which can only let somebody through.
    """

    def __init__(
        self, rate: float, *, limit: int = 50_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._burst = max(1.0, rate)
        self._limit = limit
        self._clock = clock
        self._fill_s = self._burst / rate if rate > 0 else 0.0
        self._young: dict[str, tuple[float, float]] = {}
        self._old: dict[str, tuple[float, float]] = {}
        self._turned_at = clock()

    def take(self, user_id: str) -> bool:
        """Take one token; False when the user has none. A rate of 0 or less limits nobody."""
        if self._rate <= 0:
            return True
        now = self._clock()
        if now - self._turned_at > self._fill_s or len(self._young) >= self._limit:
            self._old = self._young if now - self._turned_at <= 2 * self._fill_s else {}
            self._young = {}
            self._turned_at = now
        entry = self._young.get(user_id) or self._old.get(user_id)
        if entry is None:
            self._young[user_id] = (self._burst - 1.0, now)
            return True
        tokens = min(self._burst, entry[0] + (now - entry[1]) * self._rate)
        if tokens < 1.0:
            self._young[user_id] = (tokens, now)
            return False
        self._young[user_id] = (tokens - 1.0, now)
        return True

    def __len__(self) -> int:
        return len(self._young) + len(self._old)


class EntryBucket:
    """One token bucket for all requests of this process; the rate may change at any time."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tokens = 0.0
        self._at = clock() - 1.0

    def take(self, rate: float, burst: float = 0.0) -> bool:
        """Take one token.

        Args:
            rate: tokens a second; 0 is no limit.
            burst: most tokens that a quiet time leaves; at least a tenth of a second's.
        """
        if rate <= 0:
            return True
        now = self._clock()
        self._tokens = min(max(1.0, rate / 10, burst), self._tokens + (now - self._at) * rate)
        self._at = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


class KnownKeys:
    """Idempotency keys that this process answered with a reservation: their repeats are exempt.

    Bounded: two generations of at most `limit` keys.
    """

    def __init__(self, *, limit: int = 10_000) -> None:
        self._limit = limit
        self._young: set[tuple[int, str, str]] = set()
        self._old: set[tuple[int, str, str]] = set()

    def add(self, activity_id: int, user_id: str, key: str) -> None:
        """Remember a key."""
        if len(self._young) >= self._limit:
            self._old, self._young = self._young, set()
        self._young.add((activity_id, user_id, key))

    def __contains__(self, item: tuple[int, str, str]) -> bool:
        return item in self._young or item in self._old

"""Fails closed after a configuration failure: nothing is reserved that cannot be sent."""

import time
from collections.abc import Callable


class Breaker:
    """Opens on a configuration failure; one batch may try after a pause, up to a minute."""

    def __init__(
        self,
        *,
        pause_s: float = 2.0,
        longest_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._first_s = pause_s
        self._longest_s = longest_s
        self._clock = clock
        self._pause_s = pause_s
        self._open_until: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether the last thing known is a configuration failure."""
        return self._open_until is not None

    def allow(self) -> bool:
        """Whether a batch may reserve now. While open, True once per pause: the probe."""
        if self._open_until is None:
            return True
        now = self._clock()
        if now < self._open_until:
            return False
        self._open_until = now + self._pause_s
        return True

    def trip(self) -> None:
        """Note a configuration failure."""
        if self._open_until is not None:
            self._pause_s = min(self._longest_s, self._pause_s * 2)
        self._open_until = self._clock() + self._pause_s

    def reset(self) -> None:
        """Note that the broker stored something."""
        self._open_until = None
        self._pause_s = self._first_s

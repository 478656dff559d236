"""Fails closed after a configuration failure: nothing is reserved that cannot be sent.

The pause is short and never grows: for seconds after a broker's return the proxy still answers as
if the topic did not exist, and a probe costs one batch.
"""

import time
from collections.abc import Callable


class Breaker:
    """Opens on a configuration failure; one batch may try after each pause."""

    def __init__(
        self,
        *,
        pause_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
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
        self._open_until = self._clock() + self._pause_s

    def reset(self) -> None:
        """Note that the broker stored something."""
        self._open_until = None

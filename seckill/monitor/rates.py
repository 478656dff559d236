"""How fast totals grow, over the last few seconds (no I/O)."""

from collections import deque
from typing import Final

WINDOW_S: Final = 4.0


class RateMeter:
    """The growth of one total.

    A total that falls (its counter began anew) starts over. Looks with the same instant count once.
    """

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._looks: deque[tuple[float, int]] = deque()

    def saw(self, at_s: float, total: int) -> None:
        """Note a total."""
        looks = self._looks
        if looks and total < looks[-1][1]:
            looks.clear()
        if looks and looks[-1][0] == at_s:
            return
        looks.append((at_s, total))
        # One look older than the window stays: the rate is over at least the window.
        while len(looks) > 2 and looks[1][0] <= at_s - self._window_s:
            looks.popleft()

    @property
    def per_s(self) -> float | None:
        """Growth a second between the oldest and the newest look; None with fewer than two."""
        if len(self._looks) < 2:
            return None
        (first_at, first), (last_at, last) = self._looks[0], self._looks[-1]
        return (last - first) / (last_at - first_at)

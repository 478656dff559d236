"""Memory of the product's processes over time, looked at from outside."""

import threading
import time
from dataclasses import dataclass, field
from typing import Any, Final, Self

import psutil  # type: ignore[import-untyped,unused-ignore]

from bench.series import Point, thin
from seckill.demo.supervision import Supervisor

_WEB: Final = "web"
_MB: Final = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Look:
    """One look: MB of each process, by name."""

    at_s: float
    rss_mb: dict[str, float]
    pss_mb: dict[str, float]  # shared pages divided among those who share them

    @property
    def rss_sum(self) -> float:
        """All processes together; pages that they share count once for each."""
        return sum(self.rss_mb.values())

    @property
    def pss_sum(self) -> float:
        """What the machine gives them."""
        return sum(self.pss_mb.values())


def slope_per_hour(points: list[Point]) -> float:
    """Return the least squares slope of values over seconds, per hour; 0 for fewer than three."""
    if len(points) < 3:
        return 0.0
    middle_x = sum(x for x, _ in points) / len(points)
    middle_y = sum(y for _, y in points) / len(points)
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    if not spread:
        return 0.0
    return 3600 * sum((x - middle_x) * (y - middle_y) for x, y in points) / spread


def summary(looks: list[Look]) -> dict[str, Any]:
    """Return peak, end and growth of the sums, and each process at the end.

    The growth is that of the second half: what a process takes once is not a leak.
    """
    half = looks[len(looks) // 2 :]
    return {
        "processes": max(len(look.rss_mb) for look in looks),
        "rss_peak_mb": round(max(look.rss_sum for look in looks), 1),
        "rss_end_mb": round(looks[-1].rss_sum, 1),
        "pss_peak_mb": round(max(look.pss_sum for look in looks), 1),
        "pss_end_mb": round(looks[-1].pss_sum, 1),
        "rss_growth_mb_per_h": round(slope_per_hour([(x.at_s, x.rss_sum) for x in half]), 1),
        "rss_end_mb_by_process": {n: round(mb, 1) for n, mb in sorted(looks[-1].rss_mb.items())},
    }


@dataclass(kw_only=True)
class Footprint:
    """Looks every few seconds while the block runs."""

    supervisor: Supervisor
    every_s: float
    looks: list[Look] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Look for the first time."""
        self._began = time.monotonic()
        self._take()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Look for the last time."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(10)
        self._take()

    def series(self) -> dict[str, list[Point]]:
        """Return both sums over time, for the plot."""
        return {
            "resident, sum (MB)": thin([(x.at_s, round(x.rss_sum, 1)) for x in self.looks]),
            "proportional, sum (MB)": thin([(x.at_s, round(x.pss_sum, 1)) for x in self.looks]),
        }

    def _run(self) -> None:
        while not self._stop.wait(self.every_s):
            self._take()

    def _take(self) -> None:
        rss: dict[str, float] = {}
        pss: dict[str, float] = {}
        for name, process in self._processes():
            try:
                memory = process.memory_full_info()
            except (psutil.Error, OSError):
                continue  # it has just ended; the next look finds its successor
            rss[name], pss[name] = memory.rss / _MB, memory.pss / _MB
        at_s = round(time.monotonic() - self._began, 1)
        self.looks.append(Look(at_s=at_s, rss_mb=rss, pss_mb=pss))

    def _processes(self) -> list[tuple[str, Any]]:
        """Return the product's Python processes; of the web server's, its workers."""
        found = []
        for state in self.supervisor.states():
            if not state.pid:
                continue
            if state.name != _WEB:
                found.append((state.name, psutil.Process(state.pid)))
                continue
            workers = psutil.Process(state.pid).children()
            found += [(f"{_WEB}-{place}", worker) for place, worker in enumerate(workers)]
        return found

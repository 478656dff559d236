"""One source of the monitor: read when its time has come, remembered while it fails."""

import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Final, Generic, TypeVar

import structlog

from seckill.monitor.snapshot import Problem

T = TypeVar("T")

log = structlog.get_logger(__name__)

# A source may cost at most this share of the time: one that got slow is asked less often,
_SHARE: Final = 0.05
# but never less often than this.
_LONGEST_S: Final = 10.0
# So long a look waits for a source; its answer counts when it comes later.
PATIENCE_S: Final = 0.8


class Part(Generic[T]):
    """A source and its last answer. Belongs to one thread; its reads run in `threads`.

    Args:
        name: as people call it.
        read: asks; whatever it raises becomes a problem of the snapshot.
        threads: where reads run, so that a source that hangs holds nobody but itself.
        every_s: shortest time between two reads.
    """

    def __init__(
        self,
        *,
        name: str,
        read: Callable[[], T],
        threads: Executor,
        every_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.value: T | None = None
        self.read_at_ms = 0
        self._read = read
        self._threads = threads
        self._every_s = every_s
        self._clock = clock
        self._due = float("-inf")
        self._asked = float("-inf")
        self._answer: Future[T] | None = None
        self._problem: Problem | None = None

    def refresh(self, now_ms: int) -> Problem | None:
        """Read if it is due; return what is wrong with the source, None when nothing is."""
        patience_s = 0.0
        if self._answer is None:
            if self._clock() < self._due:
                return self._problem
            self._asked = self._clock()
            self._answer = self._threads.submit(self._read)
            patience_s = PATIENCE_S
        try:
            self.value = self._answer.result(patience_s)
        except TimeoutError:
            if not self._answer.done():
                self._note("it does not answer", now_ms)
                return self._problem
            self._note("TimeoutError", now_ms)
        except Exception as error:
            self._note(type(error).__name__, now_ms)
        else:
            self.read_at_ms = now_ms
            self._note("", now_ms)
        self._answer = None
        took_s = self._clock() - self._asked
        # A tick that comes a little early must not be lost.
        self._due = self._asked + max(0.9 * self._every_s, min(took_s / _SHARE, _LONGEST_S))
        return self._problem

    def _note(self, error: str, now_ms: int) -> None:
        if not error:
            if self._problem is not None:
                log.info("monitor_part_back", part=self.name)
            self._problem = None
        elif self._problem is None:
            log.warning("monitor_part_failed", part=self.name, error=error)
            self._problem = Problem(part=self.name, error=error, since_ms=now_ms)

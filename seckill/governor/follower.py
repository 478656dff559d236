"""Keeps this process's copy of the decision: a thread that asks Redis four times a second.

Whoever reads the copy never waits and never fails: a Redis that hangs makes it old, and an old copy
is a THROTTLE (docs/governor.md). The thread starts at the first read and ends when nobody has read
for a while, so that short commands and tests leave nothing behind.
"""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import structlog
from django.conf import settings

from inventory.gate import gate
from seckill.governor import store
from seckill.governor.view import GovernorView, decode, stale_view, static_view

REFRESH_S: Final = 0.25
_PRESENCE_S: Final = 1.0
_IDLE_S: Final = 10.0
_FIRST_WAIT_S: Final = 0.5

log = structlog.get_logger(__name__)


class Follower:
    """The copy of one process, and the thread that keeps it.

    Args:
        web_process: name under which a web process counts among those that share the entry rate.
        read: asks Redis; tests put their own in.
    """

    def __init__(
        self,
        *,
        web_process: str = "",
        read: Callable[[], store.Published] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._web_process = web_process
        self._read = read or (lambda: gate().run(store.read(web_process=web_process)))
        self._clock = clock
        self._view: GovernorView | None = None
        self._stale = stale_view()
        self._heard_at = float("-inf")
        self._asked_at = clock()
        self._present_at = float("-inf")
        self._was_stale = False
        self._first = threading.Event()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def current(self) -> GovernorView:
        """Return the decision in force. Never raises; only a process's first call may wait."""
        self._asked_at = self._clock()
        if self._thread is None:
            self._start()
        view = self._view
        age_ms = (self._clock() - self._heard_at) * 1000
        if view is None or age_ms > settings.SECKILL_GOVERNOR_TTL_MS:
            return self._stale
        return view

    def refresh(self) -> None:
        """Ask Redis once; without an answer the copy stays and ages."""
        try:
            found = self._read()
            self._say_present(found.now_ms)
        except Exception as error:
            # Whatever is wrong with Redis: the copy's age tells.
            self._note(stale=True, why=type(error).__name__)
        else:
            self._take(found)
        self._first.set()

    def _take(self, found: store.Published) -> None:
        if found.web_processes != self._stale.web_processes:
            self._stale = stale_view(web_processes=found.web_processes)
        view = decode(found.decision) if found.decision is not None else None
        if view is None:
            self._heard_at = float("-inf")
            self._note(stale=True, why="missing" if found.decision is None else "unreadable")
            return
        self._view = replace(view, web_processes=max(1, found.web_processes))
        self._heard_at = self._clock()
        self._note(stale=False, why="")

    def close(self) -> None:
        """End the thread, and give the web process's share to the others."""
        self._stop.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(2.5)
        if self._web_process:
            try:
                gate().run(store.leave(web_process=self._web_process))
            except Exception as error:
                log.info("governor_share_not_left", error=type(error).__name__)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                self._first.clear()
                self._thread = threading.Thread(target=self._follow, name="governor", daemon=True)
                self._thread.start()
        self._first.wait(_FIRST_WAIT_S)

    def _follow(self) -> None:
        while not self._stop.is_set():
            self.refresh()
            idle_s = self._clock() - self._asked_at
            if idle_s > _IDLE_S and not self._web_process:
                break
            self._stop.wait(REFRESH_S)
        with self._lock:
            self._thread = None

    def _say_present(self, now_ms: int) -> None:
        if not self._web_process or self._clock() - self._present_at < _PRESENCE_S:
            return
        gate().run(store.be_present(web_process=self._web_process, now_ms=now_ms))
        self._present_at = self._clock()

    def _note(self, *, stale: bool, why: str) -> None:
        """Log when the governor falls silent or is heard again, once each."""
        if stale is not self._was_stale:
            self._was_stale = stale
            if stale:
                log.warning("governor_silent", why=why)
            else:
                log.info("governor_heard")


_follower: tuple[int, Follower] | None = None
_guard: Final = threading.Lock()


def follower() -> Follower:
    """Return the process's follower, made at first use and again after a fork."""
    global _follower
    with _guard:
        if _follower is None or _follower[0] != os.getpid():
            _follower = (os.getpid(), Follower())
        return _follower[1]


def stop_following() -> None:
    """End the process's follower (tests)."""
    global _follower
    with _guard:
        found, _follower = _follower, None
    if found is not None and found[0] == os.getpid():
        found[1].close()


def current() -> GovernorView:
    """Return the decision in force, at most about 250 ms old.

    Returns:
        The settings' limits while SECKILL_GOVERNOR is off; a `stale` THROTTLE while it is on and no
        governor was heard of for SECKILL_GOVERNOR_TTL_MS.

    Cost: an attribute; only the first call of a process waits for Redis, half a second at most.
    """
    if settings.SECKILL_GOVERNOR != "on":
        return static_view()
    return follower().current()

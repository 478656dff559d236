"""What a loop tells its shell: that it makes progress, its state, and a few numbers (no I/O)."""

import threading
import time
from enum import StrEnum
from typing import Any


class LoopState(StrEnum):
    """State of a loop, as the heartbeat shows it."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"  # its group is paused: receives nothing until an operator resumes it
    WAITING = "WAITING"  # a store or the broker is away: receives nothing until a probe passes
    STOPPED = "STOPPED"


class Pulse:
    """Written by a loop and its helper threads, read by heartbeat and watchdog."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parts: dict[str, float] = {}
        self._state = LoopState.RUNNING
        self._detail: dict[str, Any] = {}

    def touch(self, part: str = "loop") -> None:
        """Say that a part of the loop makes progress; every part must do so until it `ends`."""
        self._parts[part] = time.monotonic()

    def end(self, part: str) -> None:
        """A helper thread ended: nobody waits for its progress any more."""
        with self._lock:
            self._parts.pop(part, None)

    def report(self, state: LoopState | None = None, **detail: Any) -> None:
        """Set the state, and numbers for the heartbeat's detail (JSON values).

        `reason` is the state's: the next one does not keep it.
        """
        with self._lock:
            if state is not None:
                self._state = state
                self._detail.pop("reason", None)
            self._detail.update(detail)

    def finish(self) -> None:
        """The loop has ended."""
        with self._lock:
            self._parts.clear()
            self._state = LoopState.STOPPED

    def snapshot(self) -> tuple[LoopState, dict[str, Any]]:
        """Return state and detail."""
        with self._lock:
            return self._state, dict(self._detail)

    def stalled(self, now_s: float) -> tuple[str, float]:
        """Return the part without progress for the longest time, and that time in seconds."""
        with self._lock:
            parts = list(self._parts.items())
        if not parts:
            return "", 0.0
        name, at = min(parts, key=lambda part: part[1])
        return name, now_s - at

    def forgive(self) -> None:
        """Count from now on: the whole process was stopped for a while (SIGSTOP, suspended box)."""
        now = time.monotonic()
        with self._lock:
            for part in self._parts:
                self._parts[part] = now

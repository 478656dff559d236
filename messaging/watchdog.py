"""Ends a process whose loop hangs: a silent worker is worse than a dead one, which is restarted."""

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Mapping

from messaging.exit_codes import ExitCode
from messaging.pulse import Pulse

_TICK_S = 1.0


class Watchdog:
    """A thread that looks at the pulses once a second.

    Args:
        pulses: loop name → pulse.
        limit_s: seconds without progress after which the process ends with HUNG.
    """

    def __init__(self, pulses: Mapping[str, Pulse], limit_s: float) -> None:
        self._pulses = pulses
        self._limit_s = limit_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Watch no more."""
        self._stop.set()
        self._thread.join(2 * _TICK_S)

    def _watch(self) -> None:
        before = time.monotonic()
        while not self._stop.wait(_TICK_S):
            now = time.monotonic()
            if now - before > 3 * _TICK_S:  # we were stopped too: that is nobody's hang
                for pulse in self._pulses.values():
                    pulse.forgive()
            before = now
            for name, pulse in self._pulses.items():
                part, stalled_s = pulse.stalled(now)
                if stalled_s > self._limit_s:
                    self._end(f"{name}/{part}", stalled_s)

    def _end(self, where: str, stalled_s: float) -> None:
        stream = sys.__stderr__ or sys.stderr
        stream.write(f"watchdog: {where} made no progress for {stalled_s:.0f} s; all stacks:\n")
        stream.flush()
        faulthandler.dump_traceback(file=stream, all_threads=True)
        os._exit(ExitCode.HUNG)

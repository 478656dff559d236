"""The operators' process, seen from the search: asked for one step at a time, started again."""

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from seckill.demo.supervision import CHECKOUT

HANGS_S: Final = 60.0


class OperatorClient:
    """Runs `python -m chaos.operator_process`; a step during which it dies answers so.

    Args:
        environment: the product's.
        log: where its output goes.
    """

    def __init__(self, *, environment: Mapping[str, str], log: Path) -> None:
        self._environment = dict(environment)
        self._log = log
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self.crashes: list[str] = []  # exceptions that no service should have let out

    def do(self, verb: str, *, activity_id: int, sku_id: int, units: int, operation_id: str) -> str:
        """Let the operator do one step; return "ok …", "refused …" or "died"."""
        wish = [verb, activity_id, sku_id, units, operation_id]
        with self._lock:
            process = self._started()
            assert process.stdin is not None  # noqa: S101
            assert process.stdout is not None  # noqa: S101
            try:
                process.stdin.write(json.dumps(wish) + "\n")
                process.stdin.flush()
                hangs = not select.select([process.stdout], [], [], HANGS_S)[0]
                answer = "" if hangs else process.stdout.readline().strip()
            except OSError:
                hangs, answer = False, ""
            if hangs:
                self.crashes.append(f"{verb} hung for {HANGS_S:.0f} s: its log shows where")
            if not answer:
                self._bury(verb, process)
            return answer or "died"

    def start(self) -> None:
        """Start the process, so that its first step need not wait for it."""
        with self._lock:
            self._started()

    def wake(self) -> None:
        """SIGCONT, in case it stands still at a fault point."""
        process = self._process
        if process is not None and process.poll() is None:
            os.kill(process.pid, signal.SIGCONT)

    def stop(self) -> None:
        """End the process; safe to call twice."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(10)
            _close_pipes(process)

    def _bury(self, verb: str, process: "subprocess.Popen[str]") -> None:
        """End it for good; note what it died of when nobody killed it and no point raised it."""
        self._process = None
        try:
            code = process.wait(2)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait(10)
        _close_pipes(process)
        if code > 0:
            last = self._log.read_text(encoding="utf-8").rstrip().rsplit("\n", 1)[-1]
            if "fault point" not in last:
                self.crashes.append(f"{verb} crashed: {last[:200]}")

    def _started(self) -> "subprocess.Popen[str]":
        if self._process is None or self._process.poll() is not None:
            with self._log.open("a", encoding="utf-8") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "chaos.operator_process"],
                    cwd=CHECKOUT,
                    env=self._environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
        return self._process


def _close_pipes(process: "subprocess.Popen[str]") -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # what was not read by a process that died
                pipe.close()

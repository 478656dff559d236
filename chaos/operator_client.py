"""The operators' process, seen from the search: asked for one step at a time, started again."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_CHECKOUT: Final = Path(__file__).resolve().parent.parent


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
                answer = process.stdout.readline().strip()
            except OSError:
                answer = ""
            if not answer:
                process.kill()
                process.wait(10)
                self._process = None
            return answer or "died"

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

    def _started(self) -> "subprocess.Popen[str]":
        if self._process is None or self._process.poll() is not None:
            with self._log.open("a", encoding="utf-8") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "chaos.operator_process"],
                    cwd=_CHECKOUT,
                    env=self._environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
        return self._process

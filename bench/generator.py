"""Starts the load generator as a process of its own and follows it."""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import msgspec

from bench.loadgen.histogram import Histogram
from bench.loadgen.plan import Plan
from bench.series import Point, rates

CHECKOUT = Path(__file__).resolve().parent.parent


class GeneratorFailed(RuntimeError):
    """The load generator ended without a result."""


def latency(*results: dict[str, Any]) -> Histogram:
    """Return the latencies of some results together."""
    histogram = Histogram()
    for result in results:
        histogram.merge({int(bucket): count for bucket, count in result["histogram"].items()})
    return histogram


class Generator:
    """One run of the load generator. Use it as a context manager: it never outlives the block.

    Args:
        plan: what to do.
        folder: where the plan, the reservation ids and the log go.
        environment: with SECKILL_JWT_SECRET when requests need tokens.
        name: of the files.
    """

    def __init__(
        self, plan: Plan, *, folder: Path, environment: Mapping[str, str], name: str = "load"
    ) -> None:
        self.ids_file = folder / f"{name}-accepted.txt"
        plan = msgspec.structs.replace(plan, ids_file=str(self.ids_file))
        plan_file = folder / f"{name}-plan.json"
        plan_file.write_bytes(msgspec.json.encode(plan))
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.loadgen", str(plan_file)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **environment},
                cwd=CHECKOUT,
                text=True,
                start_new_session=True,
            )
        self.progress: dict[str, Any] = {}
        self._counts: dict[str, list[Point]] = {"answers": [], "accepted": []}
        self._result: dict[str, Any] | None = None
        self._events: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        """Started already."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """End it, whatever it does."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join(timeout=5)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def wait_ready(self, *, timeout_s: float = 60) -> None:
        """Wait until tokens are made and connections are open.

        Raises:
            GeneratorFailed: it cannot connect, or ended.
        """
        self._wait_for("ready", timeout_s)

    def go(self) -> None:
        """Let the buyers in."""
        self._write("go\n")

    def stop(self) -> None:
        """Send the buyers home early; the result still comes."""
        self._write("stop\n")

    @property
    def done(self) -> bool:
        """Whether the result is there (or the process has ended without one)."""
        return self._result is not None or self._process.poll() is not None

    def result(self, *, timeout_s: float) -> dict[str, Any]:
        """Wait for the result.

        Raises:
            GeneratorFailed: it ended without one, or took longer.
        """
        if self._result is None:
            self._wait_for("result", timeout_s)
        if self._result is None:
            raise GeneratorFailed(f"the load generator gave no result: see {self._log}")
        return self._result

    def accepted_ids(self) -> list[str]:
        """Return the distinct reservation ids answered 202; once the result is there."""
        return self.ids_file.read_text(encoding="ascii").split()

    def rates(self, name: str) -> list[Point]:
        """Return `answers` or `accepted` per second over time, seen twice a second."""
        return rates(self._counts[name])

    def _write(self, line: str) -> None:
        stdin = self._process.stdin
        if stdin is not None and self._process.poll() is None:
            try:
                stdin.write(line)
                stdin.flush()
            except BrokenPipeError:
                return  # it has just ended; the result says how

    def _wait_for(self, event: str, timeout_s: float) -> None:
        try:
            while (got := self._events.get(timeout=timeout_s)) != event:
                if got == "end":
                    text = self._log.read_text(encoding="utf-8", errors="replace")[-800:]
                    raise GeneratorFailed(f"the load generator ended: {text}")
                if got.startswith("error"):
                    raise GeneratorFailed(got)
        except queue.Empty:
            raise GeneratorFailed(f"no {event} from the load generator in {timeout_s} s") from None

    def _read(self) -> None:
        stream = self._process.stdout
        for line in stream if stream is not None else ():
            record = json.loads(line)
            if "progress" in record:
                self.progress = record["progress"]
                for name, counts in self._counts.items():
                    counts.append((self.progress["seconds"], self.progress[name]))
            elif "result" in record:
                self._result = record["result"]
                self._events.put("result")
            elif "ready" in record:
                self._events.put("ready")
            else:
                self._events.put(f"error: {record.get('error', line)}")
        self._events.put("end")

"""What every scenario needs: a fresh private stack, a sale on it, load, and the audit."""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from bench.generator import Generator
from bench.loadgen.histogram import Histogram
from bench.loadgen.plan import Plan
from bench.series import Point
from devstack.stack import CHECKOUT, Stack
from seckill.demo.rig import Rig

LIFTED: Final = 100_000_000


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What was asked for on the command line. 0: the scenario's own number."""

    scenario: str
    connections: int = 0
    seconds: float = 0.0
    orders: int = 0
    rate: float = 0.0
    minutes: float = 0.0
    history: int = 0
    warm_up: int = 0
    appendfsync: str = "always"


@dataclass(kw_only=True)
class Outcome:
    """What a scenario measured; `notes` go under the table."""

    rate_per_s: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    errors: int
    connections: int = 0
    orders: dict[str, int] | None = None
    latency: Histogram | None = None  # of which the percentiles are; for the plot
    series: dict[str, list[Point]] = field(default_factory=dict)  # rates over time
    more: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class Bench:
    """One run of one scenario.

    Args:
        console: for what happens meanwhile.
        wish: the command line.
    """

    def __init__(self, console: Console, wish: Wish) -> None:
        base = Path(os.environ.get("SECKILL_RUN_DIR") or CHECKOUT / ".run").expanduser().absolute()
        stack = Stack(base / "bench", environ=os.environ)
        self.console = console
        self.wish = wish
        self.rig = Rig(
            stack,
            name="run",
            environment={
                "SECKILL_LOG_LEVEL": os.environ.get("SECKILL_LOG_LEVEL", "ERROR"),
                "SECKILL_TOPIC_PREFIX": "BENCH_SECKILL_",
                # A scenario says so when it wants one; the others measure what the parts can do.
                "SECKILL_GOVERNOR": os.environ.get("SECKILL_GOVERNOR", "off"),
            },
        )

    @property
    def folder(self) -> Path:
        """Plans, ids and logs of this run."""
        return self.rig.folder

    @property
    def connections(self) -> int:
        """Connections asked for; 0 for the scenario's own number."""
        return self.wish.connections

    def set_up(self) -> None:
        """Start an empty stack of our own and make tables and topics on it."""
        self.rig.stack.reset()
        self.rig.start_servers(appendfsync=self.wish.appendfsync)
        _record_commit_times(self.rig.stack)
        self.rig.prepare()

    def start(self, *wanted: str) -> None:
        """Start the named programs (all without a name); the others wait for `start_later`."""
        self.rig.start(port=18_000, only=wanted or None)
        if not wanted or "web" in wanted:
            self.rig.wait_web()
        self.rig.wait_workers()

    def start_later(self, *names: str) -> None:
        """Start programs that have waited."""
        for name in names:
            self.rig.supervisor.start_program(name)

    def load(self, plan: Plan, *, name: str = "load") -> Generator:
        """Start a load generator on the product's web server."""
        return Generator(plan, folder=self.folder, environment=self.rig.environment, name=name)

    def tear_down(self) -> None:
        """Stop everything."""
        self.rig.stop_processes()
        self.rig.stop_servers(force=True)  # the next run begins with an empty stack

    def say(self, text: str) -> None:
        """Tell what happens now."""
        self.console.print(f"{time.strftime('%H:%M:%S')}  {text}", soft_wrap=True)


def _record_commit_times(stack: Stack) -> None:
    """Let our own PostgreSQL remember when each transaction committed (an external one is left)."""
    import psycopg

    if "postgres" in stack.external.services:
        return
    with psycopg.connect(stack.urls()["DATABASE_URL"], autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET track_commit_timestamp = on")
    stack.restart("postgres")

"""The system under search: a private stack, the product's processes, and wires between them.

The product reaches its servers through wires that can be cut; the search itself goes straight.
"""

import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Final

from chaos.exporter import Exporter
from chaos.operator_client import OperatorClient
from chaos.orders_process import BUG_FILE
from chaos.wires import HOST, Wires
from devstack import processes
from devstack.stack import Stack
from seckill.demo.processes import free_port
from seckill.demo.rig import Rig, as_runtime
from seckill.demo.supervision import Program

PREFIX: Final = "CHAOS_SECKILL_"
_LAUNCHER: Final = """\
if [ -e "$FAKETIME_TIMESTAMP_FILE" ]; then export LD_PRELOAD="$CHAOS_CLOCK_LIBRARY"; fi
exec "$@"
"""
_FAKETIME: Final = (
    Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"),
    Path("/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1"),
)
_PROXIED: Final = {
    "DATABASE_URL": ("postgres", "postgres"),
    "RUNTIME_DATABASE_URL": ("postgres", "postgres"),
    "REDIS_URL": ("redis", "redis"),
    "CACHE_URL": ("redis", "redis"),
    "CELERY_BROKER_URL": ("redis", "redis"),
    "ROCKETMQ_ENDPOINTS": ("rocketmq", "proxy_grpc"),
    "PAYMENT_PROVIDER_URL": ("provider", "provider"),
}
# Less waiting: leases end, and what was missed is looked for, sooner than in production.
_SHORT: Final = {
    "SECKILL_STATEMENT_TIMEOUT_MS": "3000",
    "SECKILL_MIN_INVISIBLE_LEFT_S": "4",
    "SECKILL_INVISIBLE_S": "8",
    "SECKILL_OUTBOX_LEASE_S": "7",
    "SECKILL_SWEEP_AGES_S": "5,20,80",
    "SECKILL_RELEASE_OVERDUE_S": "8",
}


class Machine:
    """One stack and one set of processes, for any number of seeds.

    Args:
        run_dir: folder of the stack.
    """

    def __init__(self, run_dir: Path) -> None:
        self.stack = Stack(run_dir)
        self.rig = Rig(
            self.stack,
            name="chaos",
            environment={
                "SECKILL_TOPIC_PREFIX": PREFIX,
                "SECKILL_FAULTPOINTS_ALLOWED": "1",
                # longer than the sandbox takes to show a payment that it did not answer
                "SECKILL_PAYMENT_NOT_FOUND_WINDOW_S": "10",
                **_SHORT,
                "SECKILL_LOG_LEVEL": os.environ.get("SECKILL_LOG_LEVEL", "INFO"),
            },
        )
        self.points = self.rig.folder / "points"
        self.clocks = self.rig.folder / "clocks"
        self._launcher = self.rig.folder / "launch.sh"
        self.faketime = next((path for path in _FAKETIME if path.exists()), None)
        self._wires: Wires | None = None
        self._operator: OperatorClient | None = None
        self._desk: OperatorClient | None = None
        self._exporter: Exporter | None = None

    @property
    def wires(self) -> Wires:
        """The wires, once `start` was called."""
        assert self._wires is not None  # noqa: S101
        return self._wires

    @property
    def operator(self) -> OperatorClient:
        """The operators' process, once `start` was called."""
        assert self._operator is not None  # noqa: S101
        return self._operator

    @property
    def desk(self) -> OperatorClient:
        """The process of the people at the desk for dead messages, once `start` was called."""
        assert self._desk is not None  # noqa: S101
        return self._desk

    @property
    def exporter(self) -> Exporter:
        """The broker's metrics as the governor sees them, once `start` was called."""
        assert self._exporter is not None  # noqa: S101
        return self._exporter

    @property
    def bug(self) -> Path:
        """The file whose presence is the order handler's mistake."""
        return self.rig.folder / "bug"

    @property
    def base_url(self) -> str:
        """Address of the web server."""
        return self.rig.base_url

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the product's processes, with the database role that they have."""
        return as_runtime(self.rig.environment)

    def start(self) -> None:
        """Start empty servers, wires and processes; Django may be imported from here on."""
        self.stack.reset()
        self.rig.start_servers()
        self.rig.prepare()
        ports = self.stack.settings.ports
        self._wires = Wires(
            {name: ports[port] for name, port in set(_PROXIED.values())}, listen_to=("provider",)
        )
        for folder in (self.points, self.clocks):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        self._launcher.write_text(_LAUNCHER, encoding="utf-8")
        environment = dict(self.rig.environment)
        for variable, (wire, port) in _PROXIED.items():
            environment[variable] = environment[variable].replace(
                f":{ports[port]}", f":{self.wires.port(wire)}"
            )
        web = free_port(8400)
        self.bug.unlink(missing_ok=True)
        self._exporter = Exporter(environment["ROCKETMQ_METRICS_URL"])
        environment |= {
            "ROCKETMQ_METRICS_URL": self._exporter.url,
            BUG_FILE: str(self.bug),
            "SECKILL_FAULTPOINT_ARM_DIR": str(self.points),
            "PAYMENT_NOTIFY_URL": f"http://{HOST}:{web}/api/v1/payments/webhooks/sandbox",
        }
        self.rig.environment = environment
        self.rig.start(port=web, adapt=self._adapted)
        self._operator, self._desk = (
            OperatorClient(environment=self.environment, log=self.rig.folder / name)
            for name in ("operator", "desk")
        )
        self.desk.start()
        self.rig.wait_web(timeout_s=120)
        self.rig.wait_workers(timeout_s=120)

    def stop(self) -> None:
        """Stop everything; safe to call twice."""
        for people in (self._operator, self._desk):
            if people is not None:
                people.stop()
        if self._exporter is not None:
            self._exporter.close()
        self.rig.stop_processes()
        self.stack.down(force=True)

    # -- processes ------------------------------------------------------------------------------

    def pids(self, program: str) -> list[int]:
        """Return the process ids of a program, those that are down left out."""
        return [
            state.pid
            for state in self.rig.supervisor.states()
            if state.pid and state.name.split("-")[0] == program
        ]

    def signal(self, program: str, number: int, *, only_first: bool = False) -> list[int]:
        """Send a signal to the process groups of a program; return whom it reached."""
        pids = self.pids(program)
        return [pid for pid in (pids[:1] if only_first else pids) if _send(pid, number)]

    def wake_all(self) -> None:
        """SIGCONT to everything that may stand still, web workers included."""
        for state in self.rig.supervisor.states():
            if state.pid:
                _send(state.pid, signal.SIGCONT)
        self.operator.wake()
        self.desk.wake()

    def give_clock(self, program: str) -> None:
        """Restart a program with a clock that can be turned.

        Nobody else has one: the library takes a lock for each look at the clock, and a process of
        90 threads does little else then.
        """
        self.turn_clock(program, "+0")
        before = set(self.signal(program, signal.SIGTERM))
        processes.wait_until(
            lambda: len(set(self.pids(program)) - before) >= len(before), timeout_s=15, every_s=0.1
        )

    def turn_clock(self, program: str, offset: str) -> None:
        """Let the processes of a program see a time that is off by `offset` seconds."""
        (self.clocks / program).write_text(f"{offset}s\n", encoding="utf-8")

    def reset_clocks(self) -> None:
        """Let every process see the right time again, by restarts without the library."""
        for path in self.clocks.iterdir():
            path.unlink()
            self.signal(path.name, signal.SIGTERM)

    def _adapted(self, program: Program) -> Program:
        """The order consumers get a mistake that can be switched on, everybody a clock."""
        if program.name == "orders":
            python, *command = program.argv
            program = replace(program, argv=(python, "-m", "chaos.orders_process", *command))
        return self._with_clock(program)

    def _with_clock(self, program: Program) -> Program:
        """Start a program by a script that preloads the library once it has a clock to turn."""
        if self.faketime is None or program.name == "celery":
            return program
        return replace(
            program,
            argv=("/bin/sh", str(self._launcher), *program.argv),
            environment={
                **program.environment,
                "CHAOS_CLOCK_LIBRARY": str(self.faketime),
                "FAKETIME_TIMESTAMP_FILE": str(self.clocks / program.name),
                "FAKETIME_CACHE_DURATION": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "DONT_FAKE_MONOTONIC": "1",
            },
        )


def _send(pid: int, number: int) -> bool:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return False
    return True

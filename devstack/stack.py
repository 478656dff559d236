"""The whole stack: what tests and tools use. ``bin/stack`` is a thin command line over it."""

from __future__ import annotations

import os
import shutil
import signal as signals
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devstack import external, ports, processes, urls
from devstack.errors import StackError
from devstack.postgres import PostgresServer
from devstack.provider import PaymentProvider
from devstack.redis_server import RedisServer
from devstack.rocketmq import Broker, NameServer, Proxy, write_mqadmin
from devstack.service import Service
from devstack.state import SERVICES, RunFolder

CHECKOUT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, kw_only=True)
class Event:
    """What ``up`` and ``down`` tell while they work."""

    service: str
    """Name of a service, ``jars``, or ``note``."""
    state: str
    """``starting``, ``ready``, ``running``, ``stopped``, ``killed``, ``progress`` or ``note``."""
    text: str = ""
    seconds: float = 0.0
    done: int = 0
    wanted: int = 0


def _silent(event: Event) -> None:
    """Tell nobody."""


class Stack:
    """One embedded stack in one run folder.

    Args:
        run_dir: its folder; by default ``$SECKILL_RUN_DIR`` or ``.run`` of the checkout.
        environ: where external services may be named (DATABASE_URL, REDIS_URL,
            ROCKETMQ_ENDPOINTS); by default nowhere, so that a test's private stack starts
            everything whatever its shell has exported.
        tell: gets an Event for every step.
    """

    def __init__(
        self,
        run_dir: Path | str | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        port_base: int | None = None,
        tell: Callable[[Event], None] = _silent,
    ) -> None:
        path = Path(run_dir or os.environ.get("SECKILL_RUN_DIR") or CHECKOUT / ".run")
        self.folder = RunFolder(path=path.expanduser().absolute())
        self.settings = self.folder.load()
        self.port_base = port_base
        self.tell = tell
        self.external = self._external(environ or {})
        self.services: dict[str, Service] = {
            kind.name: kind(folder=self.folder, settings=self.settings)
            for kind in (PostgresServer, RedisServer, NameServer, Broker, Proxy, PaymentProvider)
        }

    @property
    def wanted(self) -> tuple[str, ...]:
        """The services that are ours to start, in start order."""
        return tuple(name for name in SERVICES if name not in self.external.services)

    def up(self, *, appendfsync: str | None = None, verify: bool = False) -> dict[str, str]:
        """Start what is missing and wait until all of it serves; return the addresses.

        Raises:
            StackError: with one line for a person; what has started stays up.
        """
        self.external.check()
        with self._locked():
            if appendfsync:
                self.settings.appendfsync = appendfsync
            running = frozenset(
                name for name in self.wanted if self.service(name).process is not None
            )
            self._settle_ports(running)
            self.folder.save(self.settings)
            self._warn_of_full_disk()
            with ThreadPoolExecutor(4, thread_name_prefix="stack") as pool:
                rocketmq = ("namesrv", "broker", "proxy")
                chains = (("postgres",), ("redis",), rocketmq, ("provider",))
                jobs = [pool.submit(self._start_chain, chain, verify) for chain in chains]
            for job in jobs:
                job.result()
        return self.urls()

    def down(self, *, force: bool = False) -> None:
        """Stop everything of ours; return when the ports are free.

        Args:
            force: SIGKILL at once, when nobody needs the data (a soft stop takes 10 to 20 s).
        """
        if force:
            for service in map(self.service, self.wanted):
                if service.process is not None:
                    processes.send_signal(service.process, signals.SIGKILL)
        with self._locked(), ThreadPoolExecutor(5, thread_name_prefix="stack") as pool:
            chains = (("postgres",), ("redis",), ("proxy",), ("broker", "namesrv"), ("provider",))
            jobs = [pool.submit(self._stop_chain, chain) for chain in chains]
        for job in jobs:
            job.result()

    def reset(self) -> None:
        """Stop everything and delete its data, settings and secrets; the jar cache stays."""
        self.down(force=True)
        postgres = self.services["postgres"]
        assert isinstance(postgres, PostgresServer)  # noqa: S101
        postgres.discard()
        for path in self.folder.path.iterdir():
            if path.name != "lock":  # somebody may be waiting on it
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def start(self, service: str, *, wait: bool = True) -> None:
        """Start one service on its known ports; by default wait until it serves."""
        with self._locked():
            self._require_ports()
            self._start_one(service, wait=wait)

    def stop(self, service: str) -> None:
        """Stop one service softly, by force when it does not end."""
        with self._locked():
            self._stop_one(service)

    def restart(self, service: str) -> None:
        """Stop one service and start it again."""
        self.stop(service)
        self.start(service)

    def kill(self, service: str, signal: int = signals.SIGKILL) -> None:
        """Send a signal to one service; return when SIGKILL or SIGSTOP has taken effect.

        No lock is taken: a fault must hit while something else is going on.
        """
        process = self.service(service).process
        if process is None:
            raise StackError(f"{service} is not running")
        processes.send_signal(process, signal)
        if signal == signals.SIGKILL:
            processes.wait_until(lambda: not processes.alive(process), timeout_s=10)
        elif signal == signals.SIGSTOP:
            processes.wait_until(lambda: processes.is_frozen(process), timeout_s=10)

    def wait_ready(self, service: str, *, timeout_s: float | None = None) -> None:
        """Wait until one service serves; raises StackError when it is down or takes too long."""
        self.service(service).wait_ready(timeout_s=timeout_s)

    def pid(self, service: str) -> int | None:
        """Return the pid of one service, None when it is down."""
        process = self.service(service).process
        return None if process is None else int(process.pid)

    def service(self, name: str) -> Service:
        """Return one service; raises StackError for an unknown or an external one."""
        if name not in self.services:
            raise StackError(f"no service {name!r}: there are {', '.join(SERVICES)}")
        if name in self.external.services:
            raise StackError(
                f"{name} is external (named in the environment): bin/stack does not control it"
            )
        return self.services[name]

    def urls(self) -> dict[str, str]:
        """Return the addresses as environment variables; {} before the first start."""
        own = urls.own_urls(folder=self.folder, settings=self.settings)
        return urls.merged(own=own, external=self.external.urls)

    def environment(self) -> dict[str, str]:
        """Return addresses, secrets and the mark that tells later commands that these are ours."""
        return self.folder.secrets() | self.urls() | {"SECKILL_STACK": str(self.folder.path)}

    def status(self) -> dict[str, Any]:
        """Return what ``bin/stack status --json`` prints."""
        table: dict[str, dict[str, Any]] = {}
        for name in self.wanted:
            service = self.services[name]
            table[name] = {
                "pid": self.pid(name),
                "ports": service.ports if self.settings.ports else {},
                "up": bool(self.settings.ports) and service.is_up(),
                "since": service.since(),
            }
        for name in sorted(self.external.services):
            table[name] = {"pid": None, "ports": {}, "up": None, "since": None, "external": True}
        return {"services": table} | self.urls() | {"run_dir": str(self.folder.path)}

    def _external(self, environ: Mapping[str, str]) -> external.External:
        if not environ:
            return external.NONE
        own = urls.own_urls(folder=self.folder, settings=self.settings)
        mark = environ.get("SECKILL_STACK")
        if mark and Path(mark) != self.folder.path:
            other = RunFolder(path=Path(mark))
            theirs = urls.own_urls(folder=other, settings=other.load())
            own |= {key: value for key, value in theirs.items() if environ.get(key) == value}
        return external.from_environment(environ=environ, own=own)

    def _locked(self) -> Any:
        return self.folder.locked(
            waiting=lambda text: self.tell(Event(service="note", state="note", text=text))
        )

    def _require_ports(self) -> None:
        if not self.settings.ports:
            raise StackError("this stack was never started: bin/stack up")

    def _settle_ports(self, running: frozenset[str]) -> None:
        known = self.folder.load().ports or self.settings.ports
        self._await_lingering_ports(known, running)
        chosen, moved = ports.settle(
            known=known, base=self.port_base, running=running, seed=str(self.folder.path)
        )
        self.settings.ports.clear()
        self.settings.ports.update(chosen)
        for name in moved:
            text = f"port {known[name]} ({name}) is taken by another program, now {chosen[name]}"
            self.tell(Event(service="note", state="note", text=text))

    def _await_lingering_ports(self, known: Mapping[str, int], running: frozenset[str]) -> None:
        """Give the kernel a moment to close the sockets of a service of ours that was killed."""
        left = [
            known[port]
            for name in self.wanted
            if known and name not in running and self.folder.pid_file(name).exists()
            for port in ports.OWNED[name]
        ]
        processes.wait_until(lambda: all(map(ports.is_free, left)), timeout_s=5)

    def _warn_of_full_disk(self) -> None:
        usage = shutil.disk_usage(self.folder.path)
        if usage.used / (usage.used + usage.free) > 0.88:
            text = "the disk is over 88 % full: RocketMQ refuses messages at 90 %, free some space"
            self.tell(Event(service="note", state="note", text=text))

    def _start_chain(self, chain: tuple[str, ...], verify: bool) -> None:
        names = [name for name in chain if name in self.wanted]
        if "namesrv" in names:
            self._fetch_jars(verify)
            write_mqadmin(folder=self.folder, settings=self.settings)
        for name in names:
            self._start_one(name, wait=True)

    def _fetch_jars(self, verify: bool) -> None:
        from devstack import jars

        def progress(done: int, wanted: int, text: str) -> None:
            self.tell(Event(service="jars", state="progress", text=text, done=done, wanted=wanted))

        jars.ensure(verify=verify, progress=progress)

    def _start_one(self, name: str, *, wait: bool) -> None:
        service, began = self.service(name), time.monotonic()
        if service.is_up() and service.is_ready():
            service.settle()
            self.tell(Event(service=name, state="running", text=self._place(service)))
            return
        self.tell(Event(service=name, state="starting", text=service.title))
        service.start()
        if wait:
            service.wait_ready()
            seconds = time.monotonic() - began
            self.tell(
                Event(service=name, state="ready", text=self._place(service), seconds=seconds)
            )

    def _stop_chain(self, chain: tuple[str, ...]) -> None:
        for name in chain:
            if name in self.wanted:
                self._stop_one(name)

    def _stop_one(self, name: str) -> None:
        service, began = self.service(name), time.monotonic()
        was_running = service.process is not None
        soft = service.stop()
        if was_running:
            state = "stopped" if soft else "killed"
            self.tell(Event(service=name, state=state, seconds=time.monotonic() - began))

    @staticmethod
    def _place(service: Service) -> str:
        return f"{ports.HOST}:{service.port}"

"""One service of the stack: how it starts, when it is ready, how it stops."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from devstack import ports as port_choice
from devstack import processes
from devstack.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import psutil  # type: ignore[import-untyped,unused-ignore]

    from devstack.processes import Account
    from devstack.state import RunFolder, Settings


class Service(ABC):
    """A detached process with its ports, its log and its pid record."""

    name: str
    title: str
    soft_signal: int = signal.SIGTERM
    start_timeout_s: float = 90
    stop_grace_s: float = 20

    def __init__(self, *, folder: RunFolder, settings: Settings) -> None:
        self.folder = folder
        self.settings = settings

    @property
    def ports(self) -> dict[str, int]:
        """The ports it listens on, by name."""
        return {name: self.settings.ports[name] for name in port_choice.OWNED[self.name]}

    @property
    def port(self) -> int:
        """Its main port."""
        return self.settings.ports["proxy_grpc" if self.name == "proxy" else self.name]

    @property
    def log(self) -> Path:
        """The file with its output."""
        return self.folder.log(self.name)

    @property
    def process(self) -> psutil.Process | None:
        """The living process, None when it is down."""
        return processes.find(processes.load_record(self.folder.pid_file(self.name)))

    @abstractmethod
    def prepare(self) -> None:
        """Make folders and configuration before a start."""

    @abstractmethod
    def argv(self) -> Sequence[str]:
        """Return the command line."""

    @abstractmethod
    def working_directory(self) -> Path:
        """Return the folder it runs in."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Tell whether it serves requests now."""

    def account(self) -> Account | None:
        """Return the user it runs as, None for the caller's."""
        return None

    def environment(self) -> dict[str, str]:
        """Return its environment: small and fixed, a user's PG* or JAVA_* must change nothing."""
        kept = ("PATH", "HOME", "LANG", "TMPDIR")
        return {name: os.environ[name] for name in kept if name in os.environ} | {"TZ": "UTC"}

    def settle(self) -> None:  # noqa: B027 (most services have nothing to do)
        """Do what is needed once it is ready; must be harmless when repeated."""

    def start(self) -> None:
        """Launch the process unless it runs."""
        if self.process is not None:
            return
        self._await_ports()
        self.prepare()
        # The log is of this start alone, so that said() cannot take an old line for a new one.
        if self.log.exists():
            self.log.replace(self.log.with_suffix(".previous.log"))
        pid = processes.spawn(
            argv=self.argv(),
            log=self.log,
            env=self.environment(),
            cwd=self.working_directory(),
            account=self.account(),
        )
        try:
            processes.save_record(path=self.folder.pid_file(self.name), pid=pid)
        except StackError:
            raise StackError(self._ended()) from None

    def wait_ready(self, *, timeout_s: float | None = None) -> None:
        """Wait until it serves; raises StackError when it dies or takes too long."""
        limit = self.start_timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit
        while not self.is_ready():
            process = self.process
            if process is None:
                raise StackError(self._ended())
            if time.monotonic() > deadline:
                frozen = " (it is stopped by SIGSTOP)" if processes.is_frozen(process) else ""
                raise StackError(
                    f"{self.title} is not ready after {limit:.0f} s{frozen}: see {self.log}"
                )
            time.sleep(0.05)
        self.settle()

    def stop(self) -> bool:
        """Stop it, wait until its ports are free; return whether it ended softly or was down."""
        process, soft = self.process, True
        if process is not None:
            soft = processes.stop(process, soft_signal=self.soft_signal, grace_s=self.stop_grace_s)
        self.folder.pid_file(self.name).unlink(missing_ok=True)
        if self.settings.ports:
            self._await_ports()
        return soft

    def is_up(self) -> bool:
        """Tell whether the process lives, is not frozen, and its main port answers."""
        process = self.process
        return (
            process is not None
            and not processes.is_frozen(process)
            and port_choice.answers(self.port)
        )

    def since(self) -> str | None:
        """Return when it was started (ISO 8601), None when it is down."""
        record = processes.load_record(self.folder.pid_file(self.name))
        if record is None or processes.find(record) is None:
            return None
        return datetime.fromtimestamp(record.started_epoch_s, tz=UTC).isoformat(timespec="seconds")

    def said(self, phrase: str) -> bool:
        """Tell whether the log of this start holds ``phrase``."""
        with contextlib.suppress(FileNotFoundError):
            return phrase.encode() in self.log.read_bytes()
        return False

    def _await_ports(self) -> None:
        """Wait until the ports are free: a killed JVM's sockets linger for a moment."""
        free = processes.wait_until(
            lambda: all(port_choice.is_free(port) for port in self.ports.values()), timeout_s=10
        )
        if not free:
            busy = [str(port) for port in self.ports.values() if not port_choice.is_free(port)]
            raise StackError(f"{self.title}: port {', '.join(busy)} is in use by another program")

    def _ended(self) -> str:
        """Say that it died, with the last lines of its log."""
        with contextlib.suppress(FileNotFoundError):
            last = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:]
            words = " / ".join(line[:200] for line in last)
            return f"{self.title} ended while starting: {words} (log: {self.log})"
        return f"{self.title} ended while starting (no log)"

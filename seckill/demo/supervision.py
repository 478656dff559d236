"""The product's processes, kept alive by supervisord: started, restarted after a crash, stopped.

A run folder holds its configuration, its logs and the record by which a later start finds and ends
what a killed run left behind.
"""

import configparser
import http.client
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import xmlrpc.client
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import psutil  # type: ignore[import-untyped,unused-ignore]
from supervisor.xmlrpc import SupervisorTransport  # type: ignore[import-untyped,unused-ignore]

from devstack import processes as pids
from seckill.demo.parent_death import signal_when_parent_dies

CHECKOUT: Final = Path(__file__).resolve().parent.parent.parent
_STOP_GRACE_S: Final = 12  # the loops promise to end within 10 s
_FAILED_STARTS: Final = 3
_FOLDER: Final = "SECKILL_SUPERVISED_IN"  # stands in the environment of all that run in a folder
_EXITED: Final = re.compile(r" exited: (\S+) ")


class StartFailed(RuntimeError):
    """A process did not come up; the text names it and its log."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """One kind of process. `count` of them run the same command.

    `{number}` in a value of the environment becomes the process's own, from 0.
    """

    name: str
    argv: tuple[str, ...]
    count: int = 1
    autostart: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ProgramState:
    """One process as the supervisor sees it."""

    name: str
    state: str
    pid: int


class Supervisor:
    """supervisord with a generated configuration. Use it as a context manager.

    Args:
        folder: run folder; configuration, logs and the pid record live there.
        environment: the whole environment of the processes.
    """

    def __init__(self, *, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.logs = folder / "logs"
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._socket_folder: Path | None = None

    @property
    def _record(self) -> Path:
        return self.folder / "supervisord.json"

    def __enter__(self) -> Self:
        """Nothing runs yet: `start` does that."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Stop everything."""
        self.stop()

    def start(self, programs: Sequence[Program]) -> None:
        """Start supervisord with these programs.

        Raises:
            StartFailed: supervisord does not answer within 10 s.
        """
        self.end_leftovers()
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir(parents=True)
        self._socket_folder = Path(tempfile.mkdtemp(prefix="seckill-"))  # unix paths must be short
        configuration = self.folder / "supervisord.conf"
        _write_configuration(
            configuration, programs=programs, socket=self._socket_folder / "rpc", logs=self.logs
        )
        with (self.logs / "supervisord.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "seckill.demo.supervisord",
                    "-n",
                    "-s",
                    "-c",
                    str(configuration),
                ],
                env={**self._environment, _FOLDER: str(self.folder)},
                cwd=CHECKOUT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is ours: we stop them in order
                preexec_fn=partial(signal_when_parent_dies, signal.SIGTERM),
            )
        pids.save_record(path=self._record, pid=self._process.pid)
        pids.wait_until(lambda: self._answers() or self._ended(), timeout_s=10)
        if self._ended() or not self._answers():
            raise StartFailed(f"supervisord did not start: see {self.logs / 'supervisord.log'}")

    def start_program(self, name: str) -> None:
        """Start the processes of a program that was not started with the others."""
        self._call("startProcessGroup", name, False)

    def stop_program(self, name: str) -> None:
        """Stop all processes of a program and wait for it."""
        self._call("stopProcessGroup", name, True)

    def states(self) -> list[ProgramState]:
        """Return the state of each process."""
        infos = self._call("getAllProcessInfo")
        return [
            ProgramState(
                name=info["name"],
                state=info["statename"],
                pid=info["pid"],
            )
            for info in infos
        ]

    def check(self) -> None:
        """Raise StartFailed when a process ended by itself for the third time."""
        for name, count in self.crashes().items():
            if count >= _FAILED_STARTS:
                log = self.logs / f"{name}.log"
                raise StartFailed(f"{name} does not start; the end of {log}:\n{_tail(log)}")

    def crashes(self) -> Counter[str]:
        """Return how often each process ended without being asked to."""
        text = (self.logs / "supervisord.log").read_text(encoding="utf-8", errors="replace")
        return Counter(_EXITED.findall(text))

    def python_memory_mb(self) -> tuple[int, int]:
        """Return the number of processes and their memory in MB, shared pages counted once."""
        if self._process is None:
            return 0, 0
        count = total = 0
        for process in psutil.Process(self._process.pid).children(recursive=True):
            try:
                total += process.memory_full_info().pss
            except (psutil.Error, OSError):
                continue
            count += 1
        return count, total // 1_000_000

    def python_cpu_s(self) -> float:
        """Return the CPU seconds that the living processes have used, user and system."""
        if self._process is None:
            return 0.0
        total = 0.0
        for process in psutil.Process(self._process.pid).children(recursive=True):
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            total += times.user + times.system
        return total

    def stop(self) -> None:
        """Stop everything: softly, then by force. Safe to call twice."""
        process, self._process = self._process, None
        if process is not None:
            self.end_leftovers()
            process.wait(timeout=5)
        if self._socket_folder is not None:
            shutil.rmtree(self._socket_folder, ignore_errors=True)
            self._socket_folder = None

    def end_leftovers(self) -> None:
        """End the supervisor of this folder, also of a run that was killed, with all it started.

        It goes first: it would start again what dies before it.
        """
        supervisor = pids.find(pids.load_record(self._record))
        if supervisor is not None:
            pids.stop(supervisor, soft_signal=signal.SIGTERM, grace_s=_STOP_GRACE_S + 5)
        self._end_orphans()
        self._record.unlink(missing_ok=True)

    def _end_orphans(self) -> None:
        """End what outlived a supervisor of this folder: its environment tells whose it was."""
        for process in psutil.process_iter():
            try:
                ours = process.environ().get(_FOLDER) == str(self.folder)
            except (psutil.Error, OSError):
                continue
            if ours and process.pid != os.getpid():
                pids.send_signal(process, signal.SIGKILL)

    def _call(self, method: str, *arguments: object) -> Any:
        transport = SupervisorTransport(None, None, f"unix://{self._socket_folder}/rpc")
        with xmlrpc.client.ServerProxy("http://localhost", transport) as server:
            return getattr(server.supervisor, method)(*arguments)

    def _answers(self) -> bool:
        if self._socket_folder is None or not (self._socket_folder / "rpc").exists():
            return False
        try:
            return bool(self._call("getState"))
        except (OSError, http.client.HTTPException, xmlrpc.client.Error):
            return False

    def _ended(self) -> bool:
        return self._process is None or self._process.poll() is not None


def _write_configuration(
    path: Path, *, programs: Sequence[Program], socket: Path, logs: Path
) -> None:
    # supervisord expands %(…)s, so a percent sign is written twice; configparser must not look.
    config = configparser.RawConfigParser()
    config["unix_http_server"] = {"file": str(socket), "chmod": "0700"}
    config["supervisord"] = {
        "logfile": str(logs / "supervisord.log"),
        "logfile_maxbytes": "0",
        "pidfile": str(path.with_suffix(".pid")),
        "childlogdir": str(logs),
        "loglevel": "info",
    }
    config["rpcinterface:supervisor"] = {
        "supervisor.rpcinterface_factory": "supervisor.rpcinterface:make_main_rpcinterface"
    }
    for place, program in enumerate(programs):
        argv = [word.replace("{folder}", str(path.parent)) for word in program.argv]
        argv = [word.replace("%", "%%") for word in argv]
        environment = ",".join(f'{name}="{value}"' for name, value in program.environment.items())
        one = program.count == 1
        config[f"program:{program.name}"] = {
            "command": shlex.join(argv),
            "directory": str(CHECKOUT),
            "numprocs": str(program.count),
            "process_name": "%(program_name)s" if one else "%(program_name)s-%(process_num)d",
            "autostart": str(program.autostart).lower(),
            "autorestart": "true",
            "startsecs": "2",
            "startretries": "1000000",
            "priority": str(10 + place),  # stopped in the opposite order: the web first
            "stopsignal": "TERM",
            "stopwaitsecs": str(_STOP_GRACE_S),
            "killasgroup": "true",
            "redirect_stderr": "true",
            "stdout_logfile": str(
                logs / (f"{program.name}.log" if one else "%(program_name)s-%(process_num)d.log")
            ),
            "stdout_logfile_maxbytes": "0",
            "environment": environment.replace("%", "%%").replace("{number}", "%(process_num)d"),
        }
    with path.open("w", encoding="utf-8") as stream:
        config.write(stream)


def _tail(path: Path, lines: int = 15) -> str:
    try:
        return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return "(no log)"

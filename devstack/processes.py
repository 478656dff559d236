"""Detached processes: start, recognise, signal and stop them by a pid record that survives us."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped,unused-ignore]

from devstack.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

# Start times count from boot, and the boot time itself may be corrected by a second.
START_TIME_TOLERANCE_S = 2.0


@dataclass(frozen=True, kw_only=True)
class Account:
    """The user and group a process shall run as."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True, kw_only=True)
class PidRecord:
    """What identifies a process we started: a pid alone is reused by the kernel."""

    pid: int
    started_epoch_s: float


def save_record(*, path: Path, pid: int) -> PidRecord:
    """Record process ``pid`` in ``path``; raises StackError when it is already gone."""
    try:
        record = PidRecord(pid=pid, started_epoch_s=psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        raise StackError(f"{path.stem} ended at once") from None
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".tmp")
    scratch.write_text(json.dumps(asdict(record)), encoding="utf-8")
    scratch.replace(path)
    return record


def load_record(path: Path) -> PidRecord | None:
    """Return the record in ``path``, None when there is none or a crash damaged it."""
    try:
        return PidRecord(**json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def find(record: PidRecord | None) -> psutil.Process | None:
    """Return the living process of ``record``; None for a dead one or a stranger with its pid."""
    if record is None:
        return None
    try:
        process = psutil.Process(record.pid)
        if abs(process.create_time() - record.started_epoch_s) > START_TIME_TOLERANCE_S:
            return None
        return None if process.status() == psutil.STATUS_ZOMBIE else process
    except psutil.NoSuchProcess:
        return None


def is_frozen(process: psutil.Process) -> bool:
    """Tell whether ``process`` is stopped by SIGSTOP: it holds its ports and answers nothing."""
    try:
        return bool(process.status() == psutil.STATUS_STOPPED)
    except psutil.NoSuchProcess:
        return False


def spawn(
    *,
    argv: Sequence[str],
    log: Path,
    env: Mapping[str, str],
    cwd: Path,
    account: Account | None = None,
) -> int:
    """Start ``argv`` in a session of its own with its output appended to ``log``; return its pid.

    A shell in between forks it and ends, so init inherits the process: nobody here has to wait for
    it, and a kill -9 leaves no zombie behind in a long-lived test process.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        done = subprocess.run(
            ["/bin/sh", "-c", '"$@" </dev/null >&2 & echo $!', "sh", *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
            check=True,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )
    return int(done.stdout)


def send_signal(process: psutil.Process, number: int) -> None:
    """Send a signal; a process that has just ended is no error."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def stop(process: psutil.Process, *, soft_signal: int, grace_s: float) -> bool:
    """End ``process`` softly, by SIGKILL after ``grace_s``; return whether it ended softly."""
    send_signal(process, signal.SIGCONT)  # a frozen process would not see the soft signal
    send_signal(process, soft_signal)
    if wait_until(lambda: not alive(process), timeout_s=grace_s):
        return True
    send_signal(process, signal.SIGKILL)
    if not wait_until(lambda: not alive(process), timeout_s=10):
        raise StackError(f"process {process.pid} does not die: look at it with ps -p {process.pid}")
    return False


def alive(process: psutil.Process) -> bool:
    """Tell whether ``process`` still runs; a zombie does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def with_working_directory(*, name: str, directory: Path) -> list[psutil.Process]:
    """Return the processes called ``name`` that work in ``directory``."""
    found = []
    for process in psutil.process_iter(["name"]):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied, OSError):
            if (
                process.info["name"] == name
                and os.path.samefile(process.cwd(), directory)
                and alive(process)
            ):
                found.append(process)
    return found


def wait_until(condition: Callable[[], bool], *, timeout_s: float, every_s: float = 0.03) -> bool:
    """Poll ``condition`` until it holds or ``timeout_s`` has passed; return whether it held."""
    deadline = time.monotonic() + timeout_s
    while True:
        if condition():
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(every_s)

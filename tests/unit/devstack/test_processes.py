"""Pid records: a reused pid, a damaged record, a frozen process are not a living service."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from devstack import processes
from devstack.errors import StackError


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[int]:
    pid = processes.spawn(
        argv=["sleep", "60"], log=tmp_path / "log", env={"PATH": os.environ["PATH"]}, cwd=tmp_path
    )
    yield pid
    process = psutil.Process(pid) if psutil.pid_exists(pid) else None
    if process is not None:
        processes.stop(process, soft_signal=signal.SIGKILL, grace_s=5)


def test_a_started_process_is_found_again(sleeper: int, tmp_path: Path) -> None:
    processes.save_record(path=tmp_path / "pid", pid=sleeper)
    found = processes.find(processes.load_record(tmp_path / "pid"))
    assert found is not None
    assert found.pid == sleeper


def test_a_started_process_has_a_session_of_its_own(sleeper: int) -> None:
    assert os.getsid(sleeper) != os.getsid(0)
    assert psutil.Process(sleeper).ppid() != os.getpid()


def test_a_stranger_with_the_same_pid_is_not_ours(sleeper: int) -> None:
    long_ago = psutil.Process(sleeper).create_time() - 1000
    assert processes.find(processes.PidRecord(pid=sleeper, started_epoch_s=long_ago)) is None


def test_a_killed_process_is_gone(sleeper: int, tmp_path: Path) -> None:
    record = processes.save_record(path=tmp_path / "pid", pid=sleeper)
    os.kill(sleeper, signal.SIGKILL)
    assert processes.wait_until(lambda: processes.find(record) is None, timeout_s=5)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}'])
def test_a_damaged_record_counts_as_none(content: str, tmp_path: Path) -> None:
    (tmp_path / "pid").write_text(content, encoding="utf-8")
    assert processes.load_record(tmp_path / "pid") is None


def test_a_frozen_process_can_be_stopped_softly(sleeper: int) -> None:
    process = psutil.Process(sleeper)
    os.kill(sleeper, signal.SIGSTOP)
    assert processes.wait_until(lambda: processes.is_frozen(process), timeout_s=5)
    assert processes.stop(process, soft_signal=signal.SIGTERM, grace_s=5)


def test_a_program_that_ends_at_once_is_an_error(tmp_path: Path) -> None:
    pid = processes.spawn(
        argv=["true"], log=tmp_path / "log", env={"PATH": os.environ["PATH"]}, cwd=tmp_path
    )
    processes.wait_until(lambda: not psutil.pid_exists(pid), timeout_s=5)
    with pytest.raises(StackError, match="ended at once"):
        processes.save_record(path=tmp_path / "x.json", pid=pid)

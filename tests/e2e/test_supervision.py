"""The demo's supervisor: restarts what crashes, gives up loudly, leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from seckill.demo.processes import run_environment
from seckill.demo.supervision import Program, StartFailed, Supervisor

SLEEPER = (sys.executable, "-c", "import time; print('up 100%', flush=True); time.sleep(600)")

pytestmark = pytest.mark.process


def poll(condition, *, timeout_s: float = 15):
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, "condition not met in time"
        time.sleep(0.05)
    return value


def pids(supervisor: Supervisor, name: str) -> list[int]:
    return [s.pid for s in supervisor.states() if s.name.startswith(name) and s.pid]


@pytest.fixture
def supervisor(tmp_path):
    folder = tmp_path / "a folder"  # with a blank: paths are quoted
    folder.mkdir()
    made = Supervisor(folder=folder, environment=run_environment({}, folder=folder))
    yield made
    made.stop()


def test_a_killed_process_comes_back_and_stop_ends_all(supervisor):
    supervisor.start(
        [
            Program(name="pair", argv=SLEEPER, count=2),
            Program(name="later", argv=SLEEPER, autostart=False),
        ]
    )
    first, second = poll(lambda: p if len(p := pids(supervisor, "pair")) == 2 else None)
    assert pids(supervisor, "later") == []

    os.kill(first, signal.SIGKILL)
    poll(lambda: len(p := pids(supervisor, "pair")) == 2 and first not in p)
    assert second in pids(supervisor, "pair")
    assert sum(supervisor.crashes().values()) == 1

    supervisor.start_program("later")
    everybody = poll(lambda: p if len(p := pids(supervisor, "")) == 3 else None)
    poll(lambda: "up 100%" in (supervisor.logs / "later.log").read_text())
    supervisor.stop()
    assert [pid for pid in everybody if psutil.pid_exists(pid)] == []


def test_a_program_that_never_starts_is_named_with_its_log(supervisor):
    argv = (sys.executable, "-c", "raise SystemExit('the database is missing')")
    supervisor.start([Program(name="broken", argv=argv)])
    with pytest.raises(StartFailed, match=r"broken does not start(.|\n)*the database is missing"):
        poll(supervisor.check)


def _supervisord(pid: int) -> int:
    return psutil.Process(pid).ppid()


def test_processes_do_not_outlive_a_supervisor_that_is_killed(supervisor):
    supervisor.start([Program(name="pair", argv=SLEEPER, count=2)])
    pair = poll(lambda: p if len(p := pids(supervisor, "pair")) == 2 else None)

    os.kill(_supervisord(pair[0]), signal.SIGKILL)

    poll(lambda: [pid for pid in pair if psutil.pid_exists(pid)] == [])


def test_what_ignores_the_end_of_its_supervisor_is_ended_by_the_next_stop(supervisor):
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True)"
    argv = (sys.executable, "-c", f"{stubborn}; time.sleep(600)")
    supervisor.start([Program(name="stubborn", argv=argv)])
    (pid,) = poll(lambda: pids(supervisor, "stubborn"))
    poll(lambda: "deaf" in (supervisor.logs / "stubborn.log").read_text())
    os.kill(_supervisord(pid), signal.SIGKILL)

    supervisor.stop()

    poll(lambda: not psutil.pid_exists(pid))


def test_a_later_start_ends_what_a_killed_run_left(tmp_path):
    script = f"""
import sys, time
from pathlib import Path
from seckill.demo.processes import run_environment
from seckill.demo.supervision import Program, Supervisor
folder = Path({str(tmp_path)!r})
made = Supervisor(folder=folder, environment=run_environment({{}}, folder=folder))
made.start([Program(name="left", argv={SLEEPER!r})])
while not [s for s in made.states() if s.pid]: time.sleep(0.05)
print([s.pid for s in made.states()][0], flush=True)
time.sleep(600)
"""
    run = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    with run:
        left = int(run.stdout.readline())
        run.kill()
        run.wait()
    successor = Supervisor(folder=tmp_path, environment=run_environment({}, folder=tmp_path))
    successor.end_leftovers()
    poll(lambda: not psutil.pid_exists(left))

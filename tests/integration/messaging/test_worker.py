"""The process shell with real processes and real signals."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.db import connection

from messaging.exit_codes import ExitCode
from messaging.models import Heartbeat
from messaging.startup import find_problem
from tests.integration.messaging.messages import eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.process]

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = Path(__file__).with_name("worker_script.py")
CONSUMER = ["run_consumer", "order-create"]
SENDER = ["run_sender"]
AWAY = "postgresql://u:secret@127.0.0.1:1/x"
Start = Callable[..., "subprocess.Popen[str]"]


def environment(**changes: str) -> dict[str, str]:
    name = connection.settings_dict["NAME"]
    url = os.environ["DATABASE_URL"].rsplit("/", 1)[0] + f"/{name}"
    return {**os.environ, "DATABASE_URL": url, "PYTHONPATH": str(ROOT), **changes}


@pytest.fixture
def start() -> Iterator[Start]:
    running: list[subprocess.Popen[str]] = []

    def begin(mode: str, **changes: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), mode],
            env=environment(**changes),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        running.append(process)
        return process

    yield begin
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def wait_started(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"


def test_sigterm_ends_the_loops_in_order_with_heartbeat_row_and_file(
    start: Start, tmp_path: Path
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = start("good", SECKILL_HEARTBEAT_DIR=str(tmp_path), SECKILL_METRICS_PORT=str(port))
    wait_started(process)
    eventually(lambda: Heartbeat.objects.filter(state="RUNNING").exists())
    row = Heartbeat.objects.get()
    file = tmp_path / f"test-{process.pid}.json"
    eventually(file.exists)
    assert json.loads(file.read_text())["loops"] == {"good": "RUNNING"}
    assert (row.role, row.group) == ("test", "G_good")
    assert f":{process.pid}:test/good" in row.worker_id
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        assert b"process_cpu_seconds_total" in answer.read()

    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=10)

    assert process.returncode == ExitCode.OK
    assert out == "finished\n"
    assert '"exit_name": "OK"' in err
    assert not file.exists()
    row.refresh_from_db()
    assert row.state == "STOPPED"


def test_a_second_signal_ends_the_process_at_once(start: Start) -> None:
    process = start("stubborn")
    wait_started(process)

    process.send_signal(signal.SIGTERM)
    time.sleep(0.3)  # signals of one kind that are still pending would merge
    assert process.poll() is None
    process.send_signal(signal.SIGINT)

    assert process.wait(timeout=3) == ExitCode.SECOND_SIGNAL


def test_a_loop_that_ignores_the_stop_is_named_and_left_behind(start: Start) -> None:
    process = start(
        "stubborn", SECKILL_SIGTERM_GRACE_S="2", SECKILL_STATEMENT_TIMEOUT_MS="1000",
        SECKILL_LOCK_TIMEOUT_MS="500",
    )  # fmt: skip
    wait_started(process)

    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=10)

    assert process.returncode == ExitCode.GRACE_EXCEEDED
    assert "in stubborn" in err


def test_the_watchdog_ends_a_loop_that_hangs_and_shows_where(start: Start) -> None:
    process = start("hanging+good", SECKILL_WATCHDOG_S="2")

    _, err = process.communicate(timeout=20)

    assert process.returncode == ExitCode.HUNG
    assert "watchdog: hanging/loop made no progress" in err
    assert "in hanging" in err


def test_a_process_that_was_stopped_for_long_is_not_taken_for_hung(start: Start) -> None:
    process = start("good", SECKILL_WATCHDOG_S="3")
    wait_started(process)
    process.send_signal(signal.SIGSTOP)
    time.sleep(4)  # longer than the limit: what a suspended machine looks like
    process.send_signal(signal.SIGCONT)
    time.sleep(1.5)  # a look of the watchdog

    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=10) == ExitCode.OK


def test_sigusr1_shows_all_stacks_and_nothing_ends(start: Start) -> None:
    process = start("good")
    wait_started(process)

    process.send_signal(signal.SIGUSR1)
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=10)

    assert process.returncode == ExitCode.OK
    assert "in good" in err


def test_a_crash_of_one_loop_ends_all_with_its_own_code(start: Start) -> None:
    process = start("good+crashing")

    out, err = process.communicate(timeout=20)

    assert process.returncode == ExitCode.LOOP_CRASHED
    assert "a bug in the loop" in err
    assert "finished" in out  # the other loop ended in order


def test_loops_that_end_by_themselves_end_the_process(start: Start) -> None:
    process = start("ending")

    assert process.wait(timeout=20) == ExitCode.OK


@pytest.mark.parametrize(
    ("command", "changes", "code", "says"),
    [
        (
            CONSUMER,
            {"DATABASE_URL": AWAY},
            73,
            "no database at 127.0.0.1:1",
        ),
        (["run_scanner"], {"DATABASE_URL": AWAY}, 73, "no database at 127.0.0.1:1"),
        (["run_scanner", "--once"], {"SECKILL_INVISIBLE_S": "1"}, 76, "SECKILL_INVISIBLE_S"),
        (["run_monitor"], {"DATABASE_URL": AWAY}, 73, "no database at 127.0.0.1:1"),
        (["emergency_stop", "1", "--yes"], {"DATABASE_URL": AWAY}, 73, "PostgreSQL cannot be"),
        (["check_invariants"], {"DATABASE_URL": AWAY}, 73, "PostgreSQL cannot be reached"),
        (["run_monitor", "--once"], {"REDIS_URL": "redis://:secret@127.0.0.1:1/0"}, 75, "the gate"),
        (SENDER, {"ROCKETMQ_ENDPOINTS": "127.0.0.1:1"}, 74, "no broker proxy at 127.0.0.1:1"),
        (CONSUMER, {"SECKILL_INVISIBLE_S": "1"}, 76, "SECKILL_INVISIBLE_S"),
        (SENDER, {"SECKILL_SECRET_KEY": ""}, 78, "SECKILL_SECRET_KEY is missing"),
    ],
)
def test_a_bad_set_up_is_one_line_and_its_own_code(
    command: list[str], changes: dict[str, str], code: int, says: str
) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", *command],
        env=environment(**changes), cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    assert done.returncode == code, done.stderr
    lines = [line for line in done.stderr.splitlines() if line]
    assert len(lines) == 1
    assert says in lines[0]
    assert "secret@" not in done.stderr


def test_missing_migrations_are_named_before_anything_starts() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE django_migrations SET app = 'gone' WHERE app = 'messaging' RETURNING name"
        )
    try:
        problem = find_problem()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("UPDATE django_migrations SET app = 'messaging' WHERE app = 'gone'")

    assert problem is not None
    assert problem.code is ExitCode.MIGRATIONS_MISSING
    assert "messaging.0001_initial" in problem.text


@pytest.mark.parametrize("arguments", [[], ["no-such-group"]])
def test_a_wrong_group_is_an_error_that_lists_the_right_ones(arguments: list[str]) -> None:
    from django.core.management import CommandError, call_command

    with pytest.raises(CommandError) as refused:
        call_command("run_consumer", *arguments)

    assert refused.value.returncode == ExitCode.CONFIGURATION

"""The embedded stack itself: a private one is started, broken, healed and stopped."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from devstack import ports, processes
from devstack.errors import StackError
from devstack.stack import Stack
from devstack.state import SERVICES

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]


@pytest.fixture
def run_dir(tmp_path: Path) -> Iterator[Path]:
    """A run folder whose stack is gone afterwards, whatever the test did."""
    path = tmp_path / "run"
    yield path
    Stack(path).reset()


def test_the_life_of_a_stack(run_dir: Path) -> None:
    # given nothing: up starts everything
    stack = Stack(run_dir)
    urls = stack.up()
    status = stack.status()
    assert {name for name, entry in status["services"].items() if entry["up"]} == set(SERVICES)
    assert stack.settings.postgres_password in urls["DATABASE_URL"]
    with psycopg.connect(urls["DATABASE_URL"]) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS n")

    # up again, from another process' point of view: the same processes, at once
    pids = {name: stack.pid(name) for name in SERVICES}
    again = Stack(run_dir)
    assert again.up() == urls
    assert {name: again.pid(name) for name in SERVICES} == pids

    # the broker and PostgreSQL die: status tells, up starts these two only, nothing is lost
    again.kill("broker")
    again.kill("postgres")
    services = again.status()["services"]
    assert {name for name in SERVICES if not services[name]["up"]} == {"broker", "postgres"}
    assert services["broker"]["pid"] is None
    assert again.up() == urls
    healed = {name: again.pid(name) for name in SERVICES}
    assert {name for name in SERVICES if healed[name] != pids[name]} == {"broker", "postgres"}
    with psycopg.connect(urls["DATABASE_URL"]) as connection:
        assert connection.execute("SELECT n FROM kept").fetchone() == (1,)

    # a frozen service is not up, and goes on where it was
    again.kill("redis", signal.SIGSTOP)
    assert not again.status()["services"]["redis"]["up"]
    again.kill("redis", signal.SIGCONT)
    again.wait_ready("redis", timeout_s=20)

    # down: no process, no listener
    records = [processes.load_record(again.folder.pid_file(name)) for name in SERVICES]
    again.down(force=True)
    assert [processes.find(record) for record in records] == [None] * len(SERVICES)
    assert [port for port in again.settings.ports.values() if not ports.is_free(port)] == []
    again.down()  # a second time does no harm


def test_an_unknown_service_and_a_stack_never_started_are_one_line_errors(run_dir: Path) -> None:
    stack = Stack(run_dir)
    assert stack.urls() == {}
    with pytest.raises(StackError, match="never started"):
        stack.start("redis")
    with pytest.raises(StackError, match="no service 'kafka'"):
        stack.kill("kafka")

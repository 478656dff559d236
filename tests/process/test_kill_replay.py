"""A real replay worker, killed with SIGKILL at each of its steps: one effect, a truthful end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
from django.conf import settings
from django.db import connection

from dlq_admin.audit.verify import verify
from dlq_admin.models import ReplayItem
from dlq_admin.states import BatchStatus, Disposition, ItemStatus
from tests.fixtures.dlq import Desk, batch_status, consume, publish, work_off
from tests.fixtures.sales import open_sale

ROOT = Path(__file__).resolve().parents[2]
POINTS = (
    "replay.after_claim", "replay.before_commit", "replay.after_commit", "replay.before_settle",
    "replay.before_verify", "replay.before_advance", "replay.before_complete",
)  # fmt: skip

pytestmark = [
    pytest.mark.process,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("redis_client"),
]


@pytest.fixture
def environment() -> dict[str, str]:
    """The environment of a process on this test's own database and Redis number."""
    parts = urlsplit(os.environ["DATABASE_URL"])
    return {
        **os.environ,
        "DATABASE_URL": urlunsplit(parts._replace(path=f"/{connection.settings_dict['NAME']}")),
        "REDIS_URL": settings.REDIS_URL,
        "DJANGO_SETTINGS_MODULE": "seckill.settings",
        "SECKILL_FAULTPOINTS_ALLOWED": "1",
        "SECKILL_GOVERNOR": "off",
    }


@pytest.fixture
def worker(environment: dict[str, str], tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that were started; whatever is left of them is killed."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait(10)


def start(environment: dict[str, str], faultpoints: str, log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, "manage.py", "run_replayer"],
            cwd=ROOT,
            env={**environment, "SECKILL_FAULTPOINTS": faultpoints},
            stdout=out,
            stderr=out,
        )


def work_until_it_ends(process: subprocess.Popen[bytes], log: Path) -> int:
    """Be sender and consumer until the worker dies."""
    deadline = time.monotonic() + 40
    while process.poll() is None:
        consume(publish())
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
    return process.wait()


@pytest.mark.parametrize("point", POINTS)
def test_kill_at(
    point: str, desk: Desk, worker: list[subprocess.Popen[bytes]], environment: dict[str, str],
    tmp_path: Path,
) -> None:  # fmt: skip
    sale = open_sale(units=10)
    dead = [desk.dead(sale, one) for one in sale.reserve_all(["ann", "bob"])]
    batch_id = desk.approved(*dead)

    worker.append(start(environment, f"{point}=kill", tmp_path / "log"))
    assert work_until_it_ends(worker[0], tmp_path / "log") == -signal.SIGKILL
    work_off()  # another worker goes on

    assert {one.status for one in ReplayItem.objects.all()} == {ItemStatus.VERIFIED}
    assert batch_status(batch_id) == BatchStatus.COMPLETED
    assert (sale.orders(), sale.available(), sale.ledger_sum()) == (2, 8, 8)
    assert verify(ticket_id=desk.ticket.pk).ok


def test_kill_while_compensating(
    desk: Desk, worker: list[subprocess.Popen[bytes]], environment: dict[str, str], tmp_path: Path
) -> None:
    sale = open_sale(units=10)
    reservation = sale.reserve("ann")
    dead = desk.dead(sale, reservation)
    desk.approved(dead, disposition=Disposition.COMPENSATE)

    worker.append(start(environment, "replay.before_commit=kill", tmp_path / "log"))
    assert work_until_it_ends(worker[0], tmp_path / "log") == -signal.SIGKILL
    assert sale.outcome(reservation)[0] == "NONE"  # all or nothing
    work_off(rounds=2)

    assert {one.status for one in ReplayItem.objects.all()} == {ItemStatus.COMPENSATED}
    assert sale.outcome(reservation)[:2] == ("REJECTED", "COMPENSATED")
    assert sale.gate_stock() == 10


def test_sigterm_ends_it_with_0(
    desk: Desk, worker: list[subprocess.Popen[bytes]], environment: dict[str, str], tmp_path: Path
) -> None:
    sale = open_sale(units=10)
    dead = desk.dead(sale, sale.reserve("ann"))
    batch_id = desk.approved(dead)
    worker.append(start(environment, "", tmp_path / "log"))
    deadline = time.monotonic() + 40
    while batch_status(batch_id) != BatchStatus.COMPLETED:
        consume(publish())
        assert time.monotonic() < deadline, (tmp_path / "log").read_text()
        time.sleep(0.05)

    worker[0].send_signal(signal.SIGTERM)

    assert worker[0].wait(12) == 0
    assert sale.orders() == 1

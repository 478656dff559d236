"""The governor among real processes: a database that stalls, and what becomes of buyers meanwhile.

Governed processes: web, one order consumer, the scanner with the governor in it.
"""

import json
import signal
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import psutil
import psycopg
import pytest

from seckill.governor import store
from tests.fixtures.system import Sale, System, wait_until

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]
MakeSale = Callable[..., Sale]
ON = {"SECKILL_GOVERNOR": "on", "SECKILL_GOVERNOR_STALE_RATE": "200"}


@pytest.fixture
def governed(running: System) -> Iterator[System]:
    """The system with a governor that everybody obeys; afterwards without, as others know it."""
    for role in ("web", "orders-1", "scanner"):
        running.restart(role, **ON)
    wait_until(lambda: decision(running), timeout_s=40, what="a first decision")
    yield running
    for role in ("web", "orders-1", "scanner"):
        running.restart(role)


def decision(system: System) -> dict[str, Any]:
    with system.redis() as client:
        text = client.get(store.DECISION)
    found: dict[str, Any] = json.loads(text) if text else {}
    return found


def wait_level(system: System, *levels: str, timeout_s: float) -> dict[str, Any]:
    def there() -> dict[str, Any]:
        found = decision(system)
        return found if found.get("level") in levels else {}

    what = f"level {' or '.join(levels)}, last {decision(system)}"
    found: dict[str, Any] = wait_until(there, timeout_s=timeout_s, what=what, every_s=0.1)
    return found


def refused_and_recovers(system: System, sale: Sale, *, stall: Any, go_on: Any) -> None:
    """Stall the database, see the door close, let it go on, see everything recover by itself."""
    system.wait_orders(sale, 0)
    before = [system.buy(sale, f"early{n}") for n in range(3)]
    assert [answer.status for answer in before] == [202] * 3

    # when: the database stalls while buyers come
    stall()
    accepted = [system.buy(sale, f"mid{n}") for n in range(4)]
    accepted = [answer for answer in accepted if answer.status == 202]
    try:
        closed = wait_level(system, "FAIL_CLOSED", timeout_s=40)
        assert closed["reasons"][0].startswith("DATABASE_STALLED")
        orders = closed["groups"]["CG_SECKILL_ORDER_CREATE_PG_V1"]
        assert (orders["workers"], orders["batch"]) == (1, 32)

        # then: nothing new, and holders are answered
        crowd = (f"late{n}" for n in count())

        def refused() -> bool:
            answer = system.buy(sale, next(crowd))
            if answer.status == 202:  # the web process had not read the decision yet
                accepted.append(answer)
            return answer.body.get("code") == "FAIL_CLOSED"

        wait_until(refused, timeout_s=10, what="the door is closed", every_s=0.2)
        with system.redis() as client:
            left = client.get(f"seckill:{{{sale.activity_id}}}:sku:{sale.sku_id}:stock")
        assert left == str(sale.stock - 3 - len(accepted))
        again = system.buy(sale, "early0")
        assert again.status == 202
        assert again.body["reservation_id"] == before[0].body["reservation_id"]
    finally:
        go_on()

    # and: it opens by itself, slowly; whoever was accepted has his order
    wait_level(system, "RAMP", "NORMAL", timeout_s=60)
    wait_until(
        lambda: system.buy(sale, "late").status == 202, timeout_s=20, what="the door is open"
    )
    system.wait_orders(sale, 3 + len(accepted) + 1, timeout_s=60)
    report = system.audit(sale, timeout_s=60)
    assert report["orders"] == 3 + len(accepted) + 1


def test_a_locked_stock_row_closes_the_door_and_opens_it_again(
    governed: System, make_sale: MakeSale
) -> None:
    sale = make_sale(stock=50)
    holder = psycopg.connect(governed.env["DATABASE_URL"])

    def lock() -> None:
        governed.wait_orders(sale, 3)
        holder.execute("SELECT 1 FROM inventory_stock WHERE sku_id = %s FOR UPDATE", [sale.sku_id])

    try:
        refused_and_recovers(governed, sale, stall=lock, go_on=holder.rollback)
    finally:
        holder.close()
    levels = governed.sql(
        "SELECT level FROM seckill_governor_decision WHERE level <> before ORDER BY decided_at"
    )
    assert ("FAIL_CLOSED",) in levels
    assert levels.index(("THROTTLE",)) < levels.index(("FAIL_CLOSED",))


def test_a_paused_database_closes_the_door_and_opens_it_again(
    governed: System, make_sale: MakeSale
) -> None:
    sale = make_sale(stock=50)
    postmaster = psutil.Process(governed.stack.pid("postgres"))

    def signal_all(number: signal.Signals) -> None:
        for process in (postmaster, *postmaster.children(recursive=True)):
            try:
                process.send_signal(number)
            except psutil.NoSuchProcess:
                continue

    def pause() -> None:
        governed.wait_orders(sale, 3)
        signal_all(signal.SIGSTOP)

    def go_on() -> None:
        signal_all(signal.SIGCONT)

    refused_and_recovers(governed, sale, stall=pause, go_on=go_on)


def test_a_killed_governor_is_followed(governed: System) -> None:
    with governed.redis() as client:
        first = client.get(store.LEADER)
    began = time.monotonic()

    governed.kill("scanner")  # the supervisor starts it again

    def another() -> bool:
        with governed.redis() as client:
            return client.get(store.LEADER) not in (None, first)

    wait_until(another, timeout_s=40, what="another governor leads")
    wait_until(lambda: decision(governed), timeout_s=10, what="a decision")
    assert time.monotonic() - began < 50

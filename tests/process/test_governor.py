"""The governor among real processes: a store or the broker fails, and what becomes of buyers.

Governed processes: web, one order consumer, the scanner with the governor in it.
"""

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import Any

import psutil
import psycopg
import pytest

from seckill.governor import store
from tests.fixtures.system import Answer, Sale, System, wait_until

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]
MakeSale = Callable[..., Sale]
KNOWN_RATE = 100.0  # orders a second that the governor is told the consumers make
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

        wait_until(refused, timeout_s=30, what="the door is closed", every_s=0.2)
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
    changes = governed.sql(
        "SELECT before, level FROM seckill_governor_decision"
        " WHERE level <> before ORDER BY decided_at"
    )
    closed = [level for _, level in changes].index("FAIL_CLOSED")
    opened = [after for before, after in changes[closed + 1 :] if before in ("FAIL_CLOSED", "HOLD")]
    assert opened  # by steps: to what the lag asks for, or to RAMP; never at one stroke
    assert "NORMAL" not in opened


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
    wait_until(lambda: decision(governed), timeout_s=30, what="a decision")
    assert time.monotonic() - began < 50


@dataclass
class Watch:
    """What the governor decided and what buyers were answered, each with its monotonic second."""

    decisions: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    answers: list[tuple[float, Answer]] = field(default_factory=list)

    def accepted(self, begin_s: float = 0.0, end_s: float = float("inf")) -> int:
        return sum(a.status == 202 for at, a in list(self.answers) if begin_s <= at < end_s)

    def allowed(self, begin_s: float, end_s: float) -> tuple[float, float]:
        """Return how many the decisions between let in, and the highest rate among them."""
        rates = [(at, one["entry_rate"]) for at, one in self.decisions if begin_s <= at < end_s]
        spans = pairwise([*rates, (end_s, 0.0)])
        return sum(rate * (ends - at) for (at, rate), (ends, _) in spans), max(r for _, r in rates)


@contextmanager
def crowd_and_watch(system: System, sale: Sale) -> Iterator[Watch]:
    """Buyers come faster than any rate that is let in, and every decision is kept."""
    stop, numbers, watch = threading.Event(), count(), Watch()

    def buyers() -> None:
        while not stop.wait(0.05):
            answer = system.buy(sale, f"c{next(numbers)}")
            watch.answers.append((time.monotonic(), answer))

    def look() -> None:
        while not stop.wait(0.1):
            found = decision(system)
            if found and (not watch.decisions or found != watch.decisions[-1][1]):
                watch.decisions.append((time.monotonic(), found))

    threads = [threading.Thread(target=buyers) for _ in range(12)]
    threads.append(threading.Thread(target=look))
    for thread in threads:
        thread.start()
    try:
        yield watch
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_broker_back_with_a_backlog_gets_a_ramp_and_no_flood(
    governed: System, make_sale: MakeSale
) -> None:
    for role in ("web", "scanner"):
        governed.restart(role, **ON, SECKILL_DRAIN_RATE=str(KNOWN_RATE))
    sale = make_sale(stock=5_000)
    with crowd_and_watch(governed, sale) as watch:

        def seen(*, since_s: float, level: str, share: float = 0.0) -> float:
            """When a decision of that level and share of the capacity was first seen; else 0."""
            for at, one in list(watch.decisions):
                if at > since_s and one["level"] == level and share_of(one) >= share:
                    return at
            return 0.0

        wait_until(lambda: watch.accepted() > 50, timeout_s=30, what="the sale runs")

        # when: the broker is away until reservations wait for it
        governed.stack.kill("broker")
        down_s = time.monotonic()
        wait_until(lambda: seen(since_s=down_s, level="HOLD"), timeout_s=60, what="entry is held")
        held = wait_until(
            lambda: [
                one
                for at, one in list(watch.decisions)
                if at > down_s and one["level"] == "HOLD" and one["signals"]["backlog"] >= 50
            ],
            timeout_s=60,
            what="a backlog while entry is held",
        )
        governed.stack.start("broker")
        back_s = time.monotonic()
        ramp_s = wait_until(
            lambda: seen(since_s=back_s, level="RAMP"), timeout_s=120, what="a ramp", every_s=0.2
        )
        wait_until(
            lambda: seen(since_s=ramp_s, level="RAMP", share=0.44),
            timeout_s=60,
            what="two steps up",
            every_s=0.2,
        )
        end_s = time.monotonic()

    # then: one loop with half a batch, and a twentieth of the capacity, for as long as it was held
    orders = held[-1]["groups"]["CG_SECKILL_ORDER_CREATE_PG_V1"]
    assert (orders["workers"], orders["batch"]) == (1, 64)
    assert share_of(held[-1]) == pytest.approx(0.05, abs=0.01)

    # and: up from a quarter, a tenth at a time, 5 s apart
    after = [(at, one) for at, one in watch.decisions if at >= back_s]
    climbs: list[float] = []
    for (_, before), (at, one) in pairwise(after):
        if one["level"] != "RAMP":
            continue
        if before["level"] != "RAMP":
            assert share_of(one) == pytest.approx(0.25, abs=0.01)
        elif share_of(one) > share_of(before) + 0.05:
            assert share_of(one) == pytest.approx(share_of(before) + 0.1, abs=0.01)
            climbs.append(at)
    assert len(climbs) >= 2
    assert all(later - sooner > 4 for sooner, later in pairwise(climbs))
    assert not [one for _, one in after if one["level"] == "NORMAL"]

    # and: what came in is what was let in, although more stood at the door
    allowed, highest = watch.allowed(ramp_s, end_s)
    assert watch.accepted(ramp_s, end_s) <= 1.1 * allowed + highest
    assert any(a.status == 429 for at, a in watch.answers if ramp_s <= at < end_s)

    # and: whoever was accepted has his order
    report = governed.audit(sale, timeout_s=60)
    assert (report["broken"], report["orders"]) == (0, report["accepted"])
    assert report["orders"] >= watch.accepted()


def share_of(one: dict[str, Any]) -> float:
    """Return entry rate ÷ capacity of a decision."""
    return float(one["entry_rate"]) / float(one["drain_per_s"] or 1.0)

"""Stores and broker killed, paused and brought back under load; every test ends with the audit.

Outages last 60 s where the promise is about 60 s. What is accepted must end in an order, a
rejection with its reason, or an open ticket.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.fixtures.system import Answer, Sale, System, answered, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]
MakeSale = Callable[..., Sale]
RECOVERY_S = 30


@contextmanager
def steady_buyers(system: System, sale: Sale, *, per_second: float = 20) -> Iterator[list[Answer]]:
    """New buyers arrive all the time; each retries with his key until his answer is clear."""
    stop, answers = threading.Event(), []
    pool = ThreadPoolExecutor(32)

    def buyer(number: int) -> None:
        answer = system.buy(sale, f"s{number}")
        while answer.status not in (202, 409) and not stop.is_set():
            stop.wait(0.5)
            answer = system.buy(sale, f"s{number}")
        answers.append(answer)

    def arrive() -> None:
        number = 0
        while not stop.wait(1 / per_second):
            pool.submit(buyer, number)
            number += 1

    thread = threading.Thread(target=arrive)
    thread.start()
    try:
        yield answers
    finally:
        stop.set()
        thread.join()
        pool.shutdown(wait=True)


def everyone_accepted_is_settled(system: System, sale: Sale, answers: list[Answer]) -> None:
    accepted = {a.body["reservation_id"] for a in answers if a.status == 202}
    wait_until(
        lambda: accepted <= _settled(system, sale),
        timeout_s=60,
        what="every accepted reservation has an outcome",
        every_s=0.5,
    )


def _settled(system: System, sale: Sale) -> set[str]:
    return {
        row[0]
        for row in system.sql(
            "SELECT reservation_id FROM orders_reservation WHERE activity_id = %s", sale.activity_id
        )
    }


def orders_flow_again(system: System, make_sale: MakeSale) -> None:
    """A new buyer gets his order: every loop works again without help."""
    started = time.monotonic()
    fresh = make_sale(stock=3)
    wait_until(
        lambda: system.buy(fresh, "newcomer").status == 202,
        timeout_s=RECOVERY_S,
        what="a newcomer is accepted",
        every_s=0.5,
    )
    system.wait_orders(fresh, 1, timeout_s=RECOVERY_S - min(25, time.monotonic() - started))
    system.audit(fresh)


@pytest.mark.parametrize("service", ["broker", "proxy"])
def test_broker_side_killed_under_load(running: System, make_sale: MakeSale, service: str) -> None:
    sale = make_sale(stock=5_000)
    with steady_buyers(running, sale) as answers:
        wait_until(lambda: len(answers) > 20, timeout_s=20, what="the load runs")
        running.stack.kill(service)
        running.stack.start(service)
        orders_flow_again(running, make_sale)
    everyone_accepted_is_settled(running, sale, answers)
    report = running.audit(sale)
    assert report["broken"] == 0
    assert report["orders"] == report["accepted"]


def test_redis_killed_and_restarted_with_its_aof(running: System, make_sale: MakeSale) -> None:
    sale = make_sale(stock=5_000)
    with steady_buyers(running, sale) as answers:
        wait_until(lambda: len(answers) > 20, timeout_s=20, what="the load runs")
        running.stack.kill("redis")
        running.stack.start("redis")
        orders_flow_again(running, make_sale)
    everyone_accepted_is_settled(running, sale, answers)
    report = running.audit(sale)
    assert report["broken"] == 0


def test_postgres_killed_under_load(running: System, make_sale: MakeSale) -> None:
    sale = make_sale(stock=5_000)
    with steady_buyers(running, sale) as answers:
        wait_until(lambda: len(answers) > 20, timeout_s=20, what="the load runs")
        running.stack.kill("postgres")
        running.stack.start("postgres")
        orders_flow_again(running, make_sale)
    everyone_accepted_is_settled(running, sale, answers)
    assert running.audit(sale)["broken"] == 0


def test_database_outage_of_60_s_makes_no_dead_letter(running: System, make_sale: MakeSale) -> None:
    """A database outage must not turn buyers into dead letters, nor burn their attempts."""
    sale = make_sale(stock=5_000)
    with steady_buyers(running, sale, per_second=10) as answers:
        wait_until(lambda: len(answers) > 10, timeout_s=20, what="the load runs")
        running.stack.stop("postgres")
        outage_ends = time.monotonic() + 60
        wait_until(lambda: time.monotonic() > outage_ends, timeout_s=70, what="outage", every_s=1)
        running.stack.start("postgres")
        orders_flow_again(running, make_sale)
    everyone_accepted_is_settled(running, sale, answers)
    assert running.sql("SELECT count(*) FROM messaging_quarantine") == [(0,)]
    report = running.audit(sale)
    assert (report["broken"], report["orders"]) == (0, report["accepted"])


def test_broker_outage_of_60_s_ends_in_busy(running: System, make_sale: MakeSale) -> None:
    """Case 35: the pile of PENDING is bounded by max_pending, then the door says BUSY."""
    sale = make_sale(stock=5_000, max_pending=100)
    with steady_buyers(running, sale, per_second=10) as answers:
        wait_until(lambda: len(answers) > 10, timeout_s=20, what="the load runs")
        running.stack.kill("broker")
        outage_ends = time.monotonic() + 60
        worst = 0
        while time.monotonic() < outage_ends:
            worst = max(
                worst,
                running.redis().zcard(f"seckill:{{{sale.activity_id}}}:reservation:mq_pending"),
            )
            time.sleep(0.5)  # pace of the sampling, not a synchronisation
        refused = running.buy(sale, "late-comer")
        assert refused.status == 503
        assert worst <= 100
        running.stack.start("broker")
        orders_flow_again(running, make_sale)
    everyone_accepted_is_settled(running, sale, answers)
    report = running.audit(sale, timeout_s=60)
    assert (report["broken"], report["orders"]) == (0, report["accepted"])


def test_consumers_down_longer_than_the_validity(running: System, make_sale: MakeSale) -> None:
    """Expired once, released once; the units are sold again."""
    sale = make_sale(stock=10, validity_s=3)
    running.stop("orders-1")
    answers = running.crowd(sale, [f"u{n}" for n in range(10)], retries=20)
    assert answered(answers) == {202: 10}

    wait_until(  # the sweep runs the reject transaction
        lambda: len(_settled(running, sale)) == 10, timeout_s=40, what="all expired", every_s=0.5
    )
    running.start("orders-1")

    rows = running.sql(
        "SELECT outcome, reject_reason, count(*) FROM orders_reservation WHERE activity_id = %s"
        " GROUP BY 1, 2",
        sale.activity_id,
    )
    assert rows == [("REJECTED", "RESERVATION_EXPIRED", 10)]
    report = running.audit(sale, timeout_s=60)
    assert (report["orders"], report["broken"]) == (0, 10)
    stock = running.redis().get(f"seckill:{{{sale.activity_id}}}:sku:{sale.sku_id}:stock")
    assert stock == "10"
    again = running.crowd(sale, [f"v{n}" for n in range(11)], retries=20)
    assert answered(again) == {202: 10, 409: 1}
    running.wait_orders(sale, 10)
    running.audit(sale)


def test_a_paused_database_shrinks_nobody(running: System, make_sale: MakeSale) -> None:
    """PostgreSQL stands still for 10 s (SIGSTOP): nothing is acked that is not committed."""
    sale = make_sale(stock=200)
    running.stack.kill("postgres", signal.SIGSTOP)
    try:
        answers = running.crowd(sale, [f"u{n}" for n in range(30)], retries=20)
        resume_at = time.monotonic() + 10
        wait_until(lambda: time.monotonic() > resume_at, timeout_s=15, what="pause", every_s=0.5)
    finally:
        running.stack.kill("postgres", signal.SIGCONT)
    assert answered(answers) == {202: 30}

    running.wait_orders(sale, 30, timeout_s=60)
    assert running.audit(sale)["orders"] == 30

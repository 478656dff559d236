"""Each process killed with SIGKILL at the worst moment: nothing lost, nothing twice, all by itself.

The fault point kills the process from the inside between two steps; the supervisor starts it again.
Every test ends with the conservation check.
"""

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.fixtures.system import Sale, System, answered, wait_until

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]
MakeSale = Callable[..., Sale]


def test_web_dies_after_the_gate_before_the_send(running: System, make_sale: MakeSale) -> None:
    """Case 15: the scanner sends what the dead process reserved, under the same message id."""
    sale = make_sale(stock=5)
    running.restart("web", faultpoints="web.after_reserve=kill")

    answer = running.buy(sale, "ann")

    assert answer.status == 0  # the process died before it could answer
    running.wait_marker("web.after_reserve")
    buyers = f"seckill:{{{sale.activity_id}}}:sku:{sale.sku_id}:buyers"
    [reservation] = running.redis().hvals(buyers)
    message_id = running.redis().hget(
        f"seckill:{{{sale.activity_id}}}:reservation:{reservation}", "message_id"
    )
    running.wait_orders(sale, 1)
    assert running.sql(
        "SELECT message_id FROM orders_reservation WHERE reservation_id = %s", reservation
    ) == [(message_id,)]
    running.wait_web()
    again = running.buy(sale, "ann", key=answer.key)
    assert again.status == 202
    assert again.body["reservation_id"] == reservation
    assert running.audit(sale)["orders"] == 1


def test_web_dies_after_the_send_before_the_mark(running: System, make_sale: MakeSale) -> None:
    """The broker has it, Redis does not know: sent again, ordered once."""
    sale = make_sale(stock=5)
    running.restart("web", faultpoints="web.after_send=kill")

    answer = running.buy(sale, "bob")

    assert answer.status in (0, 202)  # an answer may go out before the mark
    running.wait_marker("web.after_send")
    running.wait_orders(sale, 1)
    assert running.audit(sale)["orders"] == 1
    assert len(running.orders(sale)) == 1


def test_every_202_before_a_kill_gets_its_order(running: System, make_sale: MakeSale) -> None:
    """Cases 16 and 40: the web process is killed under load, right after answers."""
    sale = make_sale(stock=400)
    users = [f"u{n}" for n in range(400)]
    with ThreadPoolExecutor(1) as pool:
        crowd = pool.submit(running.crowd, sale, users, threads=24, retries=40)
        wait_until(lambda: running.orders(sale), timeout_s=20, what="first orders")
        running.kill("web")
        answers = crowd.result()

    accepted = [a for a in answers if a.status == 202]
    assert answered(answers)[202] == 400  # everybody came through in the end, by retrying
    running.wait_orders(sale, 400)
    ordered = {row[3] for row in running.orders(sale)}
    assert {a.body["reservation_id"] for a in accepted} == ordered
    assert running.audit(sale)["orders"] == 400


def test_sigterm_under_load_loses_nothing(running: System, make_sale: MakeSale) -> None:
    """Case 16: a soft stop answers what it took and refuses the rest."""
    sale = make_sale(stock=300)
    users = [f"u{n}" for n in range(300)]
    with ThreadPoolExecutor(1) as pool:
        crowd = pool.submit(running.crowd, sale, users, threads=16, retries=60)
        wait_until(lambda: running.orders(sale), timeout_s=20, what="first orders")
        assert running.stop("web") == 0
        running.start("web")
        answers = crowd.result()

    assert answered(answers)[202] == 300
    running.wait_orders(sale, 300)
    assert running.audit(sale)["orders"] == 300


@pytest.mark.parametrize(
    "point", ["consumer.after_commit", "consumer.before_announce", "consumer.before_commit"]
)
def test_consumer_dies(running: System, make_sale: MakeSale, point: str) -> None:
    """Cases 11, 37, 38: nothing acked that is not committed; its own ordered within 25 s."""
    sale = make_sale(stock=50)
    running.restart("orders-1", faultpoints=f"{point}=kill")

    answers = running.crowd(sale, [f"u{n}" for n in range(50)], retries=20)
    assert answered(answers)[202] == 50
    running.wait_marker(point)
    died_at = time.monotonic()
    running.wait_orders(sale, 50, timeout_s=25)

    assert time.monotonic() - died_at < 25
    ordered = {row[2]: row[3] for row in running.orders(sale)}
    assert ordered == {a.body["order_id"]: a.body["reservation_id"] for a in answers}  # case 36
    report = running.audit(sale)
    assert (report["orders"], report["duplicates"]) == (50, 0)


def test_consumer_dies_after_receive(running: System, make_sale: MakeSale) -> None:
    """Case 11: received and not begun is redelivered to the next process."""
    sale = make_sale(stock=20)
    running.restart("orders-1", faultpoints="consumer.after_receive=kill")

    answers = running.crowd(sale, [f"u{n}" for n in range(20)], retries=20)

    assert answered(answers)[202] == 20
    running.wait_marker("consumer.after_receive")
    running.wait_orders(sale, 20, timeout_s=25)
    assert running.audit(sale)["orders"] == 20


@pytest.mark.parametrize("point", ["sender.after_publish", "sender.after_claim"])
def test_sender_dies(running: System, make_sale: MakeSale, point: str) -> None:
    """Published but not marked: published again, applied once (confirm is repeatable)."""
    sale = make_sale(stock=20)
    running.restart("sender", faultpoints=f"{point}=kill")

    running.crowd(sale, [f"u{n}" for n in range(20)])
    running.wait_marker(point)
    running.wait_orders(sale, 20)

    assert running.audit(sale)["orders"] == 20
    statuses = {
        running.redis().hget(f"seckill:{{{sale.activity_id}}}:reservation:{row[3]}", "status")
        for row in running.orders(sale)
    }
    assert statuses == {"CONFIRMED"}


def test_scanner_dies_with_leases(running: System, make_sale: MakeSale) -> None:
    """Its leases run out and the next scanner sends, under the same ids."""
    sale = make_sale(stock=5)
    running.restart("scanner", faultpoints="scanner.after_claim=kill")
    running.restart("web", faultpoints="web.after_reserve=kill")

    answer = running.buy(sale, "cat")

    assert answer.status == 0
    running.wait_marker("web.after_reserve")
    running.wait_marker("scanner.after_claim")
    running.wait_orders(sale, 1)
    assert running.audit(sale)["orders"] == 1


def test_scanner_dies_after_its_send(running: System, make_sale: MakeSale) -> None:
    """Sent by the scanner, not marked: a duplicate that the inbox absorbs."""
    sale = make_sale(stock=5)
    running.restart("scanner", faultpoints="scanner.after_send=kill")
    running.restart("web", faultpoints="web.after_reserve=kill")

    running.buy(sale, "dan")

    running.wait_marker("scanner.after_send")
    running.wait_orders(sale, 1)
    assert running.audit(sale)["orders"] == 1


def test_stalled_web_whose_reservation_the_scanner_sent(
    running: System, make_sale: MakeSale
) -> None:
    """A web process sleeps through its lease and goes on: same message again, one order."""
    sale = make_sale(stock=5)
    running.restart("web", faultpoints="web.after_reserve=stop")

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(running.buy, sale, "eve", timeout_s=60)
        running.wait_marker("web.after_reserve")
        running.wait_orders(sale, 1)  # the scanner took over
        os.killpg(running.processes["web"].popen.pid, signal.SIGCONT)
        answer = waiting.result()

    assert answer.status in (202, 0)
    report = running.audit(sale)
    assert (report["orders"], report["duplicates"]) == (1, 0)


def test_release_dies_after_the_gate(running: System, make_sale: MakeSale) -> None:
    """The unit went back in Redis, DONE did not: given back once all the same."""
    sale = make_sale(stock=1, pay_window_s=2)
    running.restart("core", faultpoints="release.after_gate=kill")

    assert running.buy(sale, "fay").status == 202
    running.wait_orders(sale, 1)
    running.wait_marker("release.after_gate", timeout_s=40)
    wait_until(
        lambda: (
            running.sql(
                "SELECT release_state FROM orders_reservation WHERE activity_id = %s",
                sale.activity_id,
            )
            == [("DONE",)]
        ),
        timeout_s=45,
        what="release DONE",
    )

    stock = running.redis().get(f"seckill:{{{sale.activity_id}}}:sku:{sale.sku_id}:stock")
    assert stock == "1"
    running.audit(sale)
    assert running.buy(sale, "gus").status == 202  # the unit is sold again


@pytest.mark.parametrize("role", ["orders-1", "core", "sender", "scanner"])
def test_sigterm_ends_a_loop_within_its_grace(running: System, role: str) -> None:
    """SIGTERM: stop taking, finish, exit 0 within 10 s."""
    started = time.monotonic()
    code = running.stop(role)
    took = time.monotonic() - started
    running.start(role)

    assert code == 0
    assert took < 10

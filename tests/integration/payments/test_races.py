"""Payment against cancel, resale and webhook, all at once: one winner, every cent accounted for."""

import threading
from collections import Counter
from contextlib import suppress

import pytest

from orders.cancel_order import cancel_by_user, cancel_unpaid
from orders.errors import OrderStateConflict
from orders.payments.attempts import start_payment
from orders.scan.refunds import RefundsJob
from tests.fixtures.payments import (
    assert_money_exact,
    attempts,
    poll,
    refunds,
    settle_all,
)
from tests.fixtures.sales import at_once, make_overdue, open_sale, run_releases
from tests.fixtures.sql import one, rows

pytestmark = pytest.mark.django_db
PRICE = 1999


def _status(order_id):
    return one("SELECT status FROM orders_order WHERE order_id = %s", order_id)


@pytest.mark.timeout(110)
def test_pay_and_cancel_at_a_barrier_200_times(sandbox):
    """Case 18: one winner each time; never paid and cancelled without a refund."""
    sale = open_sale(units=200, price_cents=PRICE)
    made = sale.reserve_all([f"u{n}" for n in range(200)])
    for start in range(0, 200, 50):
        sale.deliver(*made[start : start + 50])
    make_overdue(*made)
    barrier = threading.Barrier(2)

    def payer():
        for reservation in made:
            barrier.wait(30)
            with suppress(OrderStateConflict):
                start_payment(order_id=reservation.order_id, user_id=reservation.user_id)

    def canceller():
        for n, reservation in enumerate(made):
            barrier.wait(30)
            with suppress(OrderStateConflict):
                if n % 2:
                    cancel_unpaid([reservation.order_id])
                else:
                    cancel_by_user(order_id=reservation.order_id, user_id=reservation.user_id)

    assert at_once([payer, canceller]) == [None, None]
    ends = Counter(r[0] for r in rows("SELECT status FROM orders_order"))
    settle_all()

    paid = {r[0] for r in rows("SELECT order_id FROM orders_order WHERE status = 'PAID'")}
    assert set(ends) <= {"PAID", "CANCELED"}
    assert ends["PAID"] == len(paid)
    net = _net_cents(sandbox)
    for reservation in made:
        kept = reservation.order_id in paid
        assert net.get(reservation.order_id, 0) == (PRICE if kept else 0)
        owed = [("LATE_PAYMENT", "SUCCEEDED")] if _captured(reservation.order_id) else []
        assert refunds(reservation.order_id) == ([] if kept else owed)
    assert sale.available() == 200 - len(paid)
    money = assert_money_exact(sandbox)
    assert money.kept == len(paid) * PRICE


def _net_cents(sandbox):
    """What the provider holds for each order."""
    net, after = Counter(), 0
    while True:
        page = sandbox.call("GET", f"/v1/book?after={after}&limit=1000")[1]
        for line in page["lines"]:
            if line["entry"]["status"] == "SUCCEEDED":
                sign = 1 if line["kind"] == "payment" else -1
                net[line["entry"]["reference"]] += sign * line["entry"]["amount_cents"]
        after = page["next"]
        if not after:
            return net


def _captured(order_id):
    return any(status == "SUCCEEDED" for status, _ in attempts(order_id))


def test_paid_after_time_out_and_the_unit_is_resold(sandbox):
    """Case 17: A expires, B buys, A's payment lands: A is refunded, B keeps, stock 0."""
    sale = open_sale(units=1, price_cents=PRICE)
    a = sale.reserve("a")
    sale.deliver(a)
    sandbox.arm("create_payment", "late_accept", reference=a.order_id, delay_ms=600)
    start_payment(order_id=a.order_id, user_id="a")
    make_overdue(a)
    cancel_unpaid([a.order_id])
    run_releases()
    b = sale.reserve("b")
    sale.deliver(b)
    start_payment(order_id=b.order_id, user_id="b")
    poll(lambda: sandbox.net_cents(a.order_id) == PRICE, what="A's payment lands")

    settle_all()

    assert (_status(a.order_id), refunds(a.order_id)) == (
        "CANCELED",
        [("LATE_PAYMENT", "SUCCEEDED")],
    )
    assert (_status(b.order_id), refunds(b.order_id)) == ("PAID", [])
    assert (sale.available(), sale.gate_stock()) == (0, 0)
    assert (sandbox.net_cents(a.order_id), sandbox.net_cents(b.order_id)) == (0, PRICE)
    assert_money_exact(sandbox)


def test_last_unit_two_payers(sandbox):
    """Case 28: A is charged while his order is cancelled and B buys and pays the same unit."""
    sale = open_sale(units=1, price_cents=PRICE)
    a = sale.reserve("a")
    sale.deliver(a)
    make_overdue(a)
    sandbox.arm("create_payment", "slow", reference=a.order_id, delay_ms=300)

    def resell():
        poll(lambda: attempts(a.order_id), what="A's attempt is on its way")
        cancel_unpaid([a.order_id])
        run_releases()
        b = sale.reserve("b")
        sale.deliver(b)
        start_payment(order_id=b.order_id, user_id="b")
        return b.order_id

    _, order_b = at_once([lambda: start_payment(order_id=a.order_id, user_id="a"), resell])
    assert refunds(a.order_id) == [("LATE_PAYMENT", "DUE")]  # the loser ends in refund due
    assert assert_money_exact(sandbox).refund_due == PRICE
    settle_all()

    assert (_status(a.order_id), _status(order_b)) == ("CANCELED", "PAID")
    assert sale.available() == 0
    money = assert_money_exact(sandbox)
    assert (money.money_in, money.kept, money.refunded) == (2 * PRICE, PRICE, PRICE)


def test_a_hold_that_runs_out_between_look_and_commit_sells_one_of_one(sandbox):
    """Case 21: A pays, his time-out and B's purchase all at once, 15 times: never 2 of 1."""
    for _ in range(15):
        sale = open_sale(units=1, price_cents=PRICE)
        a = sale.reserve("a")
        sale.deliver(a)
        make_overdue(a)

        def buy(sale=sale):
            run_releases()
            b = sale.reserve("b")
            sale.deliver(b)
            start_payment(order_id=b.order_id, user_id="b")

        at_once(
            [
                lambda a=a: start_payment(order_id=a.order_id, user_id="a"),
                lambda a=a: cancel_unpaid([a.order_id]),
                buy,
            ]
        )
        settle_all()
        paid = one(
            "SELECT count(*) FROM orders_order WHERE activity_id = %s AND status = 'PAID'",
            sale.activity_id,
        )
        live = one(
            "SELECT count(*) FROM orders_order WHERE activity_id = %s AND status <> 'CANCELED'",
            sale.activity_id,
        )
        assert (paid <= 1, live + sale.available()) == (True, 1)
    assert_money_exact(sandbox)


def test_consume_pay_cancel_and_webhook_on_one_order_never_deadlock(sandbox, webhook_server):
    """Case 20: every transaction locks the order, then the attempt, then stock."""
    sale = open_sale(units=30, price_cents=PRICE)
    made = sale.reserve_all([f"u{n}" for n in range(30)])
    sale.deliver(*made)
    make_overdue(*made)
    for start in range(0, 30, 6):
        calls = []
        for reservation in made[start : start + 6]:
            calls += [
                lambda r=reservation: sale.deliver(r),  # redelivered
                lambda r=reservation: start_payment(order_id=r.order_id, user_id=r.user_id),
            ]
        calls.append(lambda s=start: cancel_unpaid([r.order_id for r in made[s : s + 6]]))
        results = at_once(calls)
        assert [r for r in results if isinstance(r, Exception)] == [] or all(
            isinstance(r, OrderStateConflict) for r in results if isinstance(r, Exception)
        )
    poll(lambda: sandbox.undelivered() == 0, what="all webhooks are answered")
    settle_all()
    poll(lambda: sandbox.undelivered() == 0, what="all webhooks of refunds are answered")

    assert set(webhook_server.answers) <= {"APPLIED", "IGNORED"}
    assert one("SELECT count(*) FROM orders_order WHERE status NOT IN ('PAID', 'CANCELED')") == 0
    assert_money_exact(sandbox)


@pytest.mark.parametrize("readmit_s", [0, 60])
def test_late_payers_are_readmitted_only_by_policy(sandbox, settings, readmit_s):
    """Off by default. On: his money waits, and pays the unit that he wins again at the gate."""
    settings.SECKILL_READMIT_S = readmit_s
    sale = open_sale(units=1, price_cents=PRICE)
    late = sale.reserve("a")
    sale.deliver(late)
    make_overdue(late)
    sandbox.arm("create_payment", "slow", reference=late.order_id, delay_ms=200)

    def cancel():
        poll(lambda: attempts(late.order_id), what="the attempt is on its way")
        cancel_unpaid([late.order_id])

    at_once([lambda: start_payment(order_id=late.order_id, user_id="a"), cancel])
    run_releases()
    assert RefundsJob().run_once() == (0 if readmit_s else 1)
    again = sale.reserve("a")
    sale.deliver(again)
    start_payment(order_id=again.order_id, user_id="a")
    settle_all()

    assert (_status(late.order_id), _status(again.order_id)) == ("CANCELED", "PAID")
    assert refunds(late.order_id) == ([] if readmit_s else [("LATE_PAYMENT", "SUCCEEDED")])
    assert len(sandbox.entries(again.order_id)) == (0 if readmit_s else 1)
    assert sale.available() == 0
    assert assert_money_exact(sandbox).kept == PRICE


def test_waiting_money_goes_back_when_its_buyer_does_not_return(sandbox, settings):
    settings.SECKILL_READMIT_S = 60
    sale = open_sale(units=1, price_cents=PRICE)
    late = sale.reserve("a")
    sale.deliver(late)
    make_overdue(late)
    sandbox.arm("create_payment", "timeout_after", reference=late.order_id)
    start_payment(order_id=late.order_id, user_id="a")
    cancel_unpaid([late.order_id])
    settle_all()  # lets the waiting time pass, too
    run_releases()
    other = sale.reserve("b")
    sale.deliver(other)
    start_payment(order_id=other.order_id, user_id="b")

    assert refunds(late.order_id) == [("LATE_PAYMENT", "SUCCEEDED")]
    assert (_status(other.order_id), len(sandbox.entries(other.order_id))) == ("PAID", 1)
    assert_money_exact(sandbox)

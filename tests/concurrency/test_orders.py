"""Many at once on the real PostgreSQL: threads that start together, exact books after each."""

import random
import time

import pytest

from inventory.errors import OutOfStock
from messaging.disposition import DONE, DUPLICATE, Decision, rejected
from messaging.sqlstate import ErrorClass, classify
from orders.cancel_order import cancel_unpaid
from orders.errors import OrderStateConflict
from orders.invariants import check
from orders.release import release_reservations
from tests.fixtures.paid import pay_now
from tests.fixtures.sales import (
    Sale,
    at_once,
    make_overdue,
    open_sale,
    record_captures,
    run_releases,
    run_timeouts,
    wait_past,
    with_ids,
)
from tests.fixtures.sql import one, rows

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]

MANY = 100
THREADS = 20


def _deliver(sale: Sale, batch):
    """Deliver as the consumer loop does: contention in place, else one by one."""
    for attempt in range(3):
        try:
            return sale.deliver(*batch)
        except Exception as error:
            if classify(error) is ErrorClass.CONTENTION and attempt < 2:
                continue
            if len(batch) == 1:
                raise
            break
    return [_deliver(sale, [message])[0] for message in batch]


def _no_breach(sale: Sale) -> None:
    report = check(sale.activity_id)
    assert report.breaches == ()
    assert report.as_json()["oversold"] == 0


def test_the_same_message_100_times_at_once_makes_one_order():
    sale = open_sale(units=10)
    reservation = sale.reserve("ann")

    results = []
    for _ in range(MANY // THREADS):
        results += at_once([lambda: sale.deliver(reservation)[0]] * THREADS)

    assert sorted(r.disposition for r in results) == ["ACK_DONE"] + ["ACK_DUPLICATE"] * (MANY - 1)
    assert (sale.orders(), sale.available(), sale.ledger_sum()) == (1, 9, 9)
    _no_breach(sale)


def test_other_messages_of_the_same_reservation_make_one_order():
    sale = open_sale(units=10)
    reservation = sale.reserve("ann")
    copies = [with_ids(reservation, message=True) for _ in range(THREADS)]

    results = at_once([lambda c=c: _deliver(sale, [c])[0] for c in copies])

    assert sorted(r.disposition for r in results) == ["ACK_DONE"] + ["ACK_DUPLICATE"] * (
        THREADS - 1
    )
    assert (sale.orders(), sale.available(), sale.ledger_sum()) == (1, 9, 9)
    assert one("SELECT count(*) FROM orders_reservation") == 1


def test_other_reservations_of_the_same_buyer_make_one_live_order():
    sale = open_sale(units=50)
    reservation = sale.reserve("ann")
    others = [with_ids(reservation, reservation_id=True) for _ in range(THREADS)]

    results = at_once([lambda o=o: _deliver(sale, [o])[0] for o in others])

    assert results.count(DONE) == 1
    assert results.count(rejected("DUPLICATE_ORDER")) == THREADS - 1
    assert (sale.orders(), sale.available(), sale.ledger_sum()) == (1, 49, 49)
    assert rows("SELECT release_state, count(*) FROM orders_reservation GROUP BY 1 ORDER BY 1") == [
        ("DUE", THREADS - 1),
        ("NONE", 1),
    ]


def test_case_9_the_same_message_to_two_consumers_at_a_barrier():
    sale = open_sale(units=20)
    for number in range(10):
        reservation = sale.reserve(f"u{number}")
        results = at_once([lambda r=reservation: sale.deliver(r)] * 2)
        assert sorted(r[0].disposition for r in results) == ["ACK_DONE", "ACK_DUPLICATE"]
    assert (sale.orders(), sale.available()) == (10, 10)
    _no_breach(sale)


def test_pay_and_cancel_at_a_barrier_100_times_has_one_winner_each():
    sale = open_sale(units=MANY)
    made = sale.reserve_all([f"u{i}" for i in range(MANY)])
    sale.deliver(*made)
    make_overdue(*made)
    paid = canceled = 0
    for number in range(0, MANY, 5):
        group = made[number : number + 5]
        calls = []
        for r in group:
            calls.append(lambda r=r: pay_now(order_id=r.order_id, payment_id=f"pay_{r.user_id}"))
            calls.append(lambda r=r: len(cancel_unpaid([r.order_id]).canceled))
        results = at_once(calls)
        for index in range(len(group)):
            pay, cancel = results[2 * index], results[2 * index + 1]
            if isinstance(pay, OrderStateConflict):
                assert cancel == 1
                canceled += 1
            else:
                assert (pay.status, cancel) == ("PAID", 0)
                paid += 1
    assert paid + canceled == MANY
    assert rows(
        "SELECT status, count(*) FROM orders_order WHERE (status = 'PAID') = (paid_at IS NOT NULL)"
        " GROUP BY status ORDER BY status"
    ) == [(s, n) for s, n in (("CANCELED", canceled), ("PAID", paid)) if n]
    assert (sale.available(), sale.ledger_sum()) == (canceled, canceled)
    record_captures()
    _no_breach(sale)


def test_duplicate_compensation_gives_back_once():
    sale = open_sale(units=20)
    made = sale.reserve_all([f"u{i}" for i in range(10)])
    sale.deliver(*made)
    make_overdue(*made)

    at_once([run_timeouts] * 5)
    results = at_once(
        [run_releases] * 5 + [lambda: release_reservations(r.reservation_id for r in made)] * 3
    )

    assert not [r for r in results if isinstance(r, Exception)]
    assert (sale.available(), sale.ledger_sum(), sale.gate_stock()) == (20, 20, 20)
    assert sale.holders() == {}
    assert one("SELECT count(*) FROM inventory_stockledger WHERE kind = 'RESTOCK'") == 10
    _no_breach(sale)


def test_overlapping_unsorted_batches_do_not_deadlock():
    sale = open_sale(units=500, skus=3)
    made = [
        r
        for sku in sale.sku_ids
        for r in sale.reserve_all([f"u{i}" for i in range(60)], sku_id=sku)
    ]
    shuffled = []
    for seed in range(6):
        batch = list(made)
        random.Random(seed).shuffle(batch)
        shuffled.append(batch[:120])

    results = at_once([lambda b=b: sale.deliver(*b) for b in shuffled])

    assert not [r for r in results if isinstance(r, Exception)], results
    delivered = {r.order_id for batch in shuffled for r in batch}
    assert sale.orders() == len(delivered)
    done = sum(d == DONE for r in results for d in r)
    assert done == len(delivered)
    assert sum(500 - sale.available(sku) for sku in sale.sku_ids) == len(delivered)
    _no_breach(sale)


def test_overlapping_batches_of_the_same_buyers_end_exact():
    sale = open_sale(units=500)
    first = sale.reserve_all([f"u{i}" for i in range(40)])
    second = [with_ids(r, reservation_id=True) for r in reversed(first)]

    results = at_once([lambda: _deliver(sale, first), lambda: _deliver(sale, second)])

    assert all(isinstance(r, list) for r in results), results
    decisions: list[Decision] = [d for r in results for d in r]
    assert decisions.count(DONE) == 40
    assert decisions.count(rejected("DUPLICATE_ORDER")) == 40
    assert (sale.orders(), sale.available(), sale.ledger_sum()) == (40, 460, 460)


def test_batches_of_the_same_buyers_in_opposite_orders_never_deadlock():
    sale = open_sale(units=1_000)
    for number in range(3):
        first = sale.reserve_all([f"u{number}-{i}" for i in range(100)])
        second = [with_ids(r, reservation_id=True) for r in reversed(first)]

        results = at_once([lambda b=b: sale.deliver(*b) for b in (first, second)])

        # One made its orders, the other waited for it and runs one by one: no lock was lost.
        assert sorted(type(r).__name__ for r in results) == ["OrderConflict", "list"], results
    assert (sale.orders(), sale.available()) == (300, 700)


def test_case_26_100_parallel_orders_leave_ledger_and_counter_equal():
    sale = open_sale(units=150)
    made = sale.reserve_all([f"u{i}" for i in range(100)])

    for start in range(0, 100, THREADS):
        results = at_once([lambda r=r: sale.deliver(r) for r in made[start : start + THREADS]])
        assert results == [[DONE]] * THREADS

    assert (sale.orders(), sale.available(), sale.ledger_sum()) == (100, 50, 50)
    _no_breach(sale)


def test_case_39_a_burst_of_1000_on_one_sku_is_done_in_three_seconds_without_a_retry():
    sale = open_sale(units=1_000)
    made = sale.reserve_all([f"u{i}" for i in range(1_000)])
    batches = [made[i : i + 50] for i in range(0, 1_000, 50)]
    sale.deliver(batches[0][0])  # connections and plans are warm in a consumer

    started = time.monotonic()
    results = at_once([lambda b=b: sale.deliver(*b) for b in batches])
    elapsed = time.monotonic() - started

    assert not [r for r in results if isinstance(r, Exception)], results
    assert (sale.orders(), sale.available(), sale.ledger_sum()) == (1_000, 0, 0)
    assert elapsed <= 3.0


def test_more_buyers_than_units_sell_exactly_the_units():
    sale = open_sale(units=30, gate_units=60)
    made = sale.reserve_all([f"u{i}" for i in range(60)])
    batches = [made[i : i + 6] for i in range(0, 60, 6)]

    results = at_once([lambda b=b: _deliver(sale, b) for b in batches])

    decisions = [d for r in results for d in r]
    assert decisions.count(DONE) == 30
    assert decisions.count(rejected("NO_FINAL_STOCK")) == 30
    assert (sale.orders(), sale.available(), sale.ledger_sum()) == (30, 0, 0)


def test_case_12_a_delivery_that_outlasts_its_invisible_time_changes_nothing():
    sale = open_sale()
    reservation = sale.reserve("ann")

    # When: the broker hands it to a second consumer while the first is still at work.
    first, second = at_once(
        [lambda: sale.deliver(reservation), lambda: sale.deliver(reservation, attempt=2)]
    )

    assert sorted([first[0], second[0]], key=str) == sorted([DONE, DUPLICATE], key=str)
    assert (sale.available(), sale.gate_stock()) == (9, 9)


def test_sweep_and_consumer_at_once_reach_one_result():
    from orders.contracts import create_order_body, create_order_decoder
    from orders.reject_order import reject_expired

    sale = open_sale(validity_ms=1, units=30)
    made = sale.reserve_all([f"u{i}" for i in range(20)])
    wait_past(made[-1])
    messages = [create_order_decoder.decode(create_order_body(r)) for r in made]

    results = at_once([lambda: reject_expired(messages), lambda: sale.deliver(*made)])

    assert not [r for r in results if isinstance(r, Exception)], results
    assert rows(
        "SELECT outcome, reject_reason, release_state, count(*) FROM orders_reservation"
        " GROUP BY 1, 2, 3"
    ) == [("REJECTED", "RESERVATION_EXPIRED", "DUE", 20)]
    assert one("SELECT count(*) FROM messaging_outbox WHERE tag = 'ORDER_REJECTED'") == 20


def test_a_batch_short_of_stock_leaves_no_trace():
    sale = open_sale(units=5, gate_units=10)
    made = sale.reserve_all([f"u{i}" for i in range(10)])
    results = at_once([lambda: sale.deliver(*made)] * 3)
    assert all(isinstance(r, OutOfStock) for r in results)
    assert (sale.orders(), sale.available(), one("SELECT count(*) FROM messaging_inbox")) == (
        0,
        5,
        0,
    )

"""The read model: the highest version wins in every order of arrival, and a rebuild finds all."""

import itertools
from dataclasses import replace

import pytest
from django.core.management import call_command

from messaging.disposition import DONE
from orders import query
from orders.cancel_order import cancel_by_user
from orders.handlers import PROJECTION_HANDLER
from tests.fixtures.effects import event_of, life_of, message_of, order_of
from tests.fixtures.paid import pay_now
from tests.fixtures.sales import at_once, open_sale, run_projection
from tests.fixtures.sql import execute, rows

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]


def _row(order_id):
    return rows("SELECT status, aggregate_version FROM orders_query WHERE order_id = %s", order_id)


def test_versions_4_2_3_4_end_at_4_and_each_changes_the_row_at_most_once():
    order = order_of()
    versions = {n: replace(order, version=n, status=f"S{n}") for n in (2, 3, 4)}

    changed = [
        query.upsert([event_of(message_of("ORDER_PAID", versions[n]))]) for n in (4, 2, 3, 4)
    ]

    assert changed == [1, 0, 0, 0]
    assert _row(order.order_id) == [("S4", 4)]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_every_order_of_arrival_ends_alike(order):
    life = life_of()
    for place in order:
        PROJECTION_HANDLER.handle([life[place], life[place]])
    assert _row(event_of(life[0]).order_id) == [("REFUNDED", 4)]


def test_one_batch_with_all_versions_writes_the_newest_row_whole():
    life = life_of("bob")
    assert list(PROJECTION_HANDLER.handle([life[2], life[0], life[1]])) == [DONE] * 3

    assert rows(
        "SELECT user_id, quantity, amount_cents, currency, status, payment_id, expires_at IS NULL,"
        " paid_at - created_at = interval '1 minute', canceled_at FROM orders_query"
    ) == [("bob", 1, 1999, "EUR", "REFUNDED", "pay_1", False, True, None)]


def test_opposite_batches_at_once_do_not_deadlock():
    lives = [life_of(f"u{n}") for n in range(40)]
    first = [event_of(life[1]) for life in lives]
    second = [event_of(life[2]) for life in reversed(lives)]

    answers = at_once([lambda: query.upsert(first), lambda: query.upsert(second)])

    assert not [a for a in answers if isinstance(a, Exception)]
    assert rows("SELECT DISTINCT aggregate_version FROM orders_query") == [(4,)]


def test_a_reject_is_no_order():
    PROJECTION_HANDLER.handle([message_of("ORDER_REJECTED", order_of(status="REJECTED"))])
    assert rows("SELECT count(*) FROM orders_query") == [(0,)]


def test_real_orders_are_projected_and_equal_their_rows(capsys):
    sale = open_sale()
    kept, ended = sale.reserve_all(["ann", "bob"])
    sale.deliver(kept, ended)
    pay_now(order_id=kept.order_id, payment_id="p1")
    cancel_by_user(order_id=ended.order_id, user_id="bob")

    run_projection()

    assert rows("SELECT user_id, status, reason FROM orders_query ORDER BY user_id") == [
        ("ann", "PAID", ""),
        ("bob", "CANCELED", "USER"),
    ]
    call_command("rebuild_projection", dry_run=True)
    assert "0 missing, 0 behind, 0 different, 0 without an order" in capsys.readouterr().out


def test_a_rebuild_repairs_each_kind_of_difference_and_only_those(capsys):
    sale = open_sale()
    reservations = sale.reserve_all(["ann", "bob", "cid", "dan"])
    sale.deliver(*reservations)
    run_projection()
    missing, behind, different, _ = reservations
    execute("DELETE FROM orders_query WHERE order_id = %s", missing.order_id)
    pay_now(order_id=behind.order_id, payment_id="p1")
    execute("UPDATE orders_query SET quantity = 9 WHERE order_id = %s", different.order_id)
    query.upsert([event_of(life_of("stray", activity_id=sale.activity_id)[0])])

    with pytest.raises(SystemExit):
        call_command("rebuild_projection", dry_run=True)
    report = query.rebuild(activity_id=sale.activity_id)

    assert "4 orders: 1 missing, 1 behind, 1 different, 1 without" in capsys.readouterr().out
    assert report == query.RebuildReport(
        orders=4, missing=1, behind=1, different=1, strays=1, repaired=4
    )
    assert query.rebuild() == query.RebuildReport(
        orders=4, missing=0, behind=0, different=0, strays=0, repaired=0
    )


def test_a_rebuild_never_takes_a_newer_version_back():
    sale = open_sale()
    reservation = sale.reserve("ann")
    sale.deliver(reservation)
    run_projection()
    execute("UPDATE orders_query SET aggregate_version = 9, status = 'NEWER'")

    assert query.rebuild().repaired == 0
    assert _row(reservation.order_id) == [("NEWER", 9)]

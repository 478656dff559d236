"""`check_invariants` is quiet on a sale in any state, and notices each seeded breach."""

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from inventory import keys, selectors
from orders.cancel_order import cancel_unpaid
from orders.equalities import EQUALITIES
from orders.invariants import check
from orders.payments.models import Refund
from tests.fixtures.paid import pay_now
from tests.fixtures.sales import (
    make_overdue,
    open_sale,
    record_captures,
    run_projection,
    run_releases,
    wait_past,
)
from tests.fixtures.sql import execute, one

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]

KEYS = {
    "accepted",
    "sold_out",
    "orders",
    "paid",
    "canceled",
    "refunded",
    "oversold",
    "lost",
    "broken",
    "duplicates",
    "breaches",
}


@pytest.fixture(autouse=True)
def _everything_is_old(monkeypatch):
    monkeypatch.setattr("orders.gate_check.YOUNG_MS", -1_000_000)


def _sale_at_rest():
    """Two live orders (one paid), one cancelled and released, one rejected and released."""
    sale = open_sale(units=10, limit_per_user=2)
    made = [sale.reserve("ann", quantity=2), sale.reserve("bob"), sale.reserve("cid")]
    sale.deliver(*made)
    late = sale.reserve("dan")
    late_message = type(late)(**{**_fields(late), "valid_until_ms": 1_700_000_000_000})
    sale.deliver(late_message)
    pay_now(order_id=made[0].order_id, payment_id="p1")
    record_captures()
    make_overdue(made[2])
    cancel_unpaid([made[2].order_id])
    run_releases()
    run_projection()
    return sale, made, late


def _fields(record):
    return {name: getattr(record, name) for name in type(record).__dataclass_fields__}


def test_a_sale_at_rest_has_no_breach_and_is_counted():
    sale, _, _ = _sale_at_rest()

    report = check(sale.activity_id)

    assert report.breaches == ()
    assert not report.in_motion
    (numbers,) = report.sales
    assert (numbers.initial, numbers.available, numbers.live_units, numbers.withheld) == (
        10,
        7,
        3,
        0,
    )
    found = report.as_json()
    assert {key: found[key] for key in KEYS - {"breaches", "sold_out"}} == {
        "accepted": 4,
        "orders": 3,
        "paid": 1,
        "canceled": 1,
        "refunded": 0,
        "oversold": 0,
        "lost": 0,
        "broken": 1,
        "duplicates": 0,
    }


def test_a_sale_in_motion_says_so_and_has_no_breach():
    sale = open_sale(units=10)
    pending, queued, ordered, canceled, held = (
        sale.reserve(user, sent=user != "p") for user in ("p", "q", "o", "c", "h")
    )
    sale.deliver(ordered, canceled)
    make_overdue(canceled)
    cancel_unpaid([canceled.order_id])
    sale.hold(held)

    report = check()

    assert report.breaches == ()
    assert report.in_motion
    assert report.as_json()["accepted"] == 5
    assert {pending.reservation_id, queued.reservation_id} <= sale.open_ids()


def test_held_units_are_part_of_the_balance_at_rest():
    sale = open_sale(units=10, limit_per_user=2, validity_ms=1)
    held = sale.reserve("ann", quantity=2)
    sale.hold(held)
    wait_past(held)

    report = check(sale.activity_id)

    assert (report.breaches, report.in_motion, sale.gate_stock()) == ((), False, 8)


# kind → statements that seed it, on the sale of `_sale_at_rest` (a: ann's paid order, b: bob's
# live order, c: cid's cancelled one, d: dan's rejected reservation).
SEEDS = {
    "inbox_created_without_order": [
        "UPDATE messaging_inbox SET order_id = 'ord_gone' WHERE order_id = '{b}'"
    ],
    "inbox_rejected_without_row": [
        "UPDATE messaging_inbox SET reservation_id = 'rsv_gone' WHERE outcome = 'REJECTED'"
    ],
    "reservation_without_inbox": ["DELETE FROM messaging_inbox WHERE order_id = '{b}'"],
    "order_without_reservation": ["DELETE FROM orders_reservation WHERE order_id = '{b}'"],
    "ordered_without_order": ["DELETE FROM orders_order WHERE order_id = '{b}'"],
    "duplicate_live_order": [
        "DROP INDEX orders_order_live_buyer_uniq",
        "UPDATE orders_order SET user_id = 'ann' WHERE order_id = '{b}'",
    ],
    "item_mismatch": ["UPDATE orders_item SET price_cents = 1 WHERE order_id = '{b}'"],
    "order_without_sale": ["DELETE FROM inventory_stockledger WHERE source_id = '{b}'"],
    "sale_without_order": [
        "UPDATE inventory_stockledger SET source_id = 'ord_gone' WHERE source_id = '{b}'"
    ],
    "canceled_without_return": [
        "DELETE FROM inventory_stockledger WHERE source_id = '{c}' AND kind = 'RESTOCK'"
    ],
    "live_with_return": [
        "UPDATE inventory_stockledger SET source_id = '{b}' WHERE kind = 'RESTOCK'"
    ],
    "ended_without_release": [
        "UPDATE orders_reservation SET release_state = 'NONE', release_due_at = NULL"
        " WHERE order_id = '{c}'"
    ],
    "live_with_release": [
        "UPDATE orders_reservation SET release_state = 'DONE', release_due_at = now()"
        " WHERE order_id = '{b}'"
    ],
    "order_without_event": ["DELETE FROM messaging_outbox WHERE tag = 'ORDER_CREATED'"],
    "order_without_trigger": ["DELETE FROM messaging_outbox WHERE tag = 'CANCEL_IF_UNPAID'"],
    "paid_without_event": ["DELETE FROM messaging_outbox WHERE tag = 'ORDER_PAID'"],
    "canceled_without_event": ["DELETE FROM messaging_outbox WHERE tag = 'ORDER_CANCELED'"],
    "refunded_without_event": [
        "UPDATE orders_order SET status = 'REFUNDED' WHERE order_id = '{a}'"
    ],
    "stock_conservation": ["UPDATE inventory_stock SET initial = initial + 1"],
    "ledger_sum": ["UPDATE inventory_stock SET available = available + 1"],
    "ledger_kinds": ["UPDATE inventory_stock SET topped_up = 1, cut = 1"],
}


# Order and item are written from one value: where both are wrong alike, the SKU's terms tell.
WRONG_ALIKE = {
    "price": [
        "UPDATE orders_item SET price_cents = 1 WHERE order_id = '{b}'",
        "UPDATE orders_order SET amount_cents = 1 WHERE order_id = '{b}'",
    ],
    "currency": [
        "UPDATE orders_item SET currency = 'USD' WHERE order_id = '{b}'",
        "UPDATE orders_order SET currency = 'USD' WHERE order_id = '{b}'",
    ],
    "no such SKU": [
        "UPDATE orders_item SET sku_id = 0 WHERE order_id = '{b}'",
        "UPDATE orders_order SET sku_id = 0 WHERE order_id = '{b}'",
    ],
}
CASES = [
    *(pytest.param(kind, SEEDS[kind], id=kind) for kind in sorted(SEEDS)),
    *(pytest.param("item_mismatch", sql, id=f"item: {of}") for of, sql in WRONG_ALIKE.items()),
]


def test_every_equality_has_a_seed():
    assert {equality.kind for equality in EQUALITIES} <= SEEDS.keys()


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_a_seeded_breach_in_postgresql_is_noticed(kind, seed):
    sale, (ann, bob, cid), dan = _sale_at_rest()
    ids = {"a": ann.order_id, "b": bob.order_id, "c": cid.order_id, "d": dan.reservation_id}
    assert check(sale.activity_id).breaches == ()
    # Schema and data together, rolled back at the end: some breaches need a dropped index.
    index = one(
        "SELECT coalesce((SELECT indexdef FROM pg_indexes"
        " WHERE indexname = 'orders_order_live_buyer_uniq'), '')"
    )
    for sql in seed:
        execute(sql.format(**ids))
    try:
        report = check(sale.activity_id)
    finally:
        if "DROP INDEX" in seed[0]:
            execute("DELETE FROM orders_payment_attempt")
            execute("DELETE FROM orders_order")
            execute(index)

    found = [breach for breach in report.breaches if breach.kind == kind]
    assert len(found) == 1
    assert found[0].count >= 1
    assert found[0].samples


def test_an_order_of_another_sale_than_its_sku_is_noticed():
    _, (_, bob, _), _ = _sale_at_rest()
    other = open_sale()
    execute("UPDATE orders_order SET activity_id = %s WHERE user_id = 'bob'", other.activity_id)

    (found,) = (b for b in check(other.activity_id).breaches if b.kind == "item_mismatch")

    assert found.samples == (bob.order_id,)


def test_an_event_is_asked_for_as_long_as_its_day_is_kept(settings):
    sale, (ann, _, cid), _ = _sale_at_rest()
    execute("DELETE FROM messaging_outbox")
    days = settings.SECKILL_OUTBOX_DAYS
    execute(
        "UPDATE orders_order SET created_at = at, paid_at = paid_at + (at - created_at),"
        " canceled_at = canceled_at + (at - created_at)"
        " FROM (SELECT now() - %s * interval '1 day' AS at) AS long_ago",
        days,
    )
    assert _without_event(sale) == {}

    execute("UPDATE orders_order SET canceled_at = now() WHERE canceled_at IS NOT NULL")
    assert _without_event(sale) == {"canceled_without_event": (cid.order_id,)}

    execute("UPDATE orders_order SET status = 'REFUNDED' WHERE order_id = %s", ann.order_id)
    assert _without_event(sale) == {"canceled_without_event": (cid.order_id,)}
    Refund.objects.create(
        refund_id="rfd_1",
        attempt_id="p1",
        order_id=ann.order_id,
        provider="sandbox",
        provider_key="rfd_1",
        provider_refund_id="r_1",
        amount_cents=3998,
        currency="EUR",
        reason="OPERATOR",
        status="SUCCEEDED",
        submit_count=1,
        submitted_at=timezone.now(),
        settled_at=timezone.now(),
    )
    assert _without_event(sale) == {
        "canceled_without_event": (cid.order_id,),
        "refunded_without_event": (ann.order_id,),
    }


def _without_event(sale):
    breaches = check(sale.activity_id).breaches
    return {b.kind: b.samples for b in breaches if b.kind.endswith("_without_event")}


def test_a_live_order_whose_buyer_lost_his_hold_is_noticed(redis_client):
    sale, (_, bob, _), _ = _sale_at_rest()
    redis_client.hdel(keys.buyers(sale.activity_id, sale.sku_id), "bob")

    (breach,) = check(sale.activity_id).breaches

    assert (breach.kind, breach.samples) == ("order_without_holder", (bob.reservation_id,))


def test_a_holder_without_order_outcome_or_ticket_is_lost(redis_client):
    sale, _, _ = _sale_at_rest()
    lost = sale.reserve("eve")
    redis_client.zrem(keys.open_reservations(sale.activity_id), lost.reservation_id)

    report = check(sale.activity_id)

    kinds = {breach.kind: breach.samples for breach in report.breaches}
    assert kinds["holder_without_order"] == (lost.reservation_id,)
    assert report.as_json()["lost"] == 1


def test_the_gates_total_is_compared_at_rest_only(redis_client):
    sale, _, _ = _sale_at_rest()
    redis_client.incr(keys.stock(sale.activity_id, sale.sku_id))
    waiting = sale.reserve("eve")

    assert check(sale.activity_id).breaches == ()

    sale.deliver(waiting)
    run_projection()
    (breach,) = check(sale.activity_id).breaches
    assert breach.kind == "gate_stock"


def test_an_order_made_while_the_gate_is_looked_at_is_no_breach(monkeypatch):
    sale, _, _ = _sale_at_rest()
    late = sale.reserve("eve")
    read, looks = selectors.conservation, []

    def then_it_is_ordered(activity_id):
        stock = read(activity_id)
        looks.append(stock[0].available)
        if len(looks) == 2:  # the first belongs to the snapshot of PostgreSQL
            sale.deliver(late)
            run_projection()
        return stock

    monkeypatch.setattr(selectors, "conservation", then_it_is_ordered)
    report = check(sale.activity_id)

    assert (report.breaches, report.in_motion) == ((), False)
    assert looks == [7, 7, 6]


def test_a_gate_that_differs_otherwise_in_each_look_is_motion(redis_client, monkeypatch):
    sale, _, _ = _sale_at_rest()
    read = selectors.conservation

    def then_the_gate_moves(activity_id):
        stock = read(activity_id)
        redis_client.incr(keys.stock(sale.activity_id, sale.sku_id))
        return stock

    monkeypatch.setattr(selectors, "conservation", then_the_gate_moves)
    report = check(sale.activity_id)

    assert report.breaches == ()
    assert "each of 5 looks" in report.sales[0].motion[0]


def test_young_reservations_are_compared_one_by_one_at_rest_only(redis_client, monkeypatch):
    monkeypatch.setattr("orders.gate_check.YOUNG_MS", 10_000)
    sale, (_, bob, _), _ = _sale_at_rest()
    assert check(sale.activity_id, young_ms=0).breaches == ()
    redis_client.hdel(keys.buyers(sale.activity_id, sale.sku_id), "bob")

    assert check(sale.activity_id).breaches == ()
    (breach,) = check(sale.activity_id, young_ms=0).breaches
    assert (breach.kind, breach.samples) == ("order_without_holder", (bob.reservation_id,))

    call_command("check_invariants", activity=sale.activity_id, stdout=StringIO())
    with pytest.raises(SystemExit):
        call_command("check_invariants", "--at-rest", stdout=StringIO())


def test_a_lost_gate_is_motion_not_breach(redis_client):
    sale, _, _ = _sale_at_rest()
    redis_client.flushdb()

    report = check(sale.activity_id)

    assert report.breaches == ()
    assert report.in_motion


def test_the_command_prints_json_and_exits_1_on_a_breach():
    sale, _, _ = _sale_at_rest()
    out = StringIO()
    call_command("check_invariants", activity=sale.activity_id, json=True, stdout=out)
    assert json.loads(out.getvalue()).keys() >= KEYS

    execute("UPDATE inventory_stock SET available = available + 1")
    out = StringIO()
    with pytest.raises(SystemExit) as exit_info:
        call_command("check_invariants", json=True, stdout=out)
    assert exit_info.value.code == 1
    assert {b["kind"] for b in json.loads(out.getvalue())["breaches"]} == {
        "gate_stock",
        "ledger_sum",
        "stock_conservation",
    }


def test_the_command_prints_a_table_people_can_read():
    sale, _, _ = _sale_at_rest()
    out = StringIO()
    call_command("check_invariants", activity=sale.activity_id, stdout=out)
    assert "Conservation of units" in out.getvalue()
    assert "no breach" in out.getvalue()

    execute("UPDATE inventory_stock SET available = available + 1")
    out = StringIO()
    with pytest.raises(SystemExit):
        call_command("check_invariants", stdout=out)
    assert "ledger_sum" in out.getvalue()


def test_an_unknown_sale_is_a_clear_error():
    with pytest.raises(CommandError, match="no activity 999999"):
        call_command("check_invariants", activity=999_999)


def test_all_equalities_share_one_snapshot(monkeypatch):
    open_sale()
    seen = []
    real = EQUALITIES[0]

    def record(execute_, sql, params, many, context):
        if sql == real.sql:
            with connection.cursor() as cursor:
                cursor.execute("SHOW transaction_isolation")
                seen.append(cursor.fetchone()[0])
        return execute_(sql, params, many, context)

    with connection.execute_wrapper(record):
        check()
    assert seen == ["repeatable read"]

"""The order transaction on the real PostgreSQL, called with delivered messages."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import psycopg
import pytest
from django.db import OperationalError, connection, transaction
from django.utils import timezone

from inventory.errors import OutOfStock
from messaging.disposition import DONE, rejected
from messaging.disposition import quarantine as to_quarantine
from messaging.facts import BodyFacts
from messaging.sqlstate import ErrorClass, classify
from messaging.topology import INVENTORY_COMPENSATE, ORDER_EVENT, ORDER_TIMEOUT
from orders import create_order
from orders.create_order import OrderConflict
from orders.handlers import ORDER_CREATE_HANDLER
from tests.fixtures.sales import (
    create_message,
    open_sale,
    outbox_messages,
    received,
    wait_past,
    with_ids,
)
from tests.fixtures.sql import execute, one, rows

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]


def test_a_batch_becomes_orders_with_everything_that_belongs_to_them():
    sale = open_sale(units=10, limit_per_user=3, price_cents=250)
    first = sale.reserve("ann", quantity=3)
    second = sale.reserve("bob")

    assert sale.deliver(first, second) == [DONE, DONE]

    assert rows(
        "SELECT order_id, reservation_id, request_id, user_id, quantity, amount_cents, currency,"
        " status, aggregate_version, expires_at - created_at FROM orders_order ORDER BY user_id"
    ) == [
        (
            r.order_id,
            r.reservation_id,
            r.request_id,
            r.user_id,
            r.quantity,
            250 * r.quantity,
            "EUR",
            "CREATED",
            1,
            timedelta(seconds=900),
        )
        for r in (first, second)
    ]
    assert rows(
        "SELECT order_id, sku_id, quantity, price_cents, currency FROM orders_item"
        " ORDER BY quantity"
    ) == [(r.order_id, sale.sku_id, r.quantity, 250, "EUR") for r in (second, first)]
    assert sale.outcome(first) == ("ORDERED", "", "NONE")
    assert rows(
        "SELECT message_id, outcome, reason, order_id FROM messaging_inbox ORDER BY message_id"
    ) == sorted((r.message_id, "CREATED", "", r.order_id) for r in (first, second))
    assert (sale.available(), sale.ledger_sum()) == (6, 6)
    events = [msgspec.json.decode(m.body) for m in outbox_messages(ORDER_EVENT)]
    assert sorted((e["event_type"], e["order_id"], e["aggregate_version"]) for e in events) == (
        sorted(("ORDER_CREATED", r.order_id, 1) for r in (first, second))
    )
    triggers = rows(
        "SELECT lane, deliver_at_ms FROM messaging_outbox WHERE topic = %s", ORDER_TIMEOUT
    )
    expires_ms = one("SELECT extract(epoch FROM max(expires_at)) * 1000 FROM orders_order")
    assert {lane for lane, _ in triggers} == {2}
    assert all(1_000 <= at - int(expires_ms) <= 10_000 for _, at in triggers)
    assert outbox_messages(INVENTORY_COMPENSATE) == []


@pytest.mark.parametrize(
    ("pay_window_s", "least_s", "most_s"), [(900, 60.0, 60.0), (40, 10.0, 12.5)]
)
def test_triggers_are_held_back_past_the_rush(pay_window_s, least_s, most_s):
    """For a minute, of a short payment window for a quarter; nothing else waits."""
    sale = open_sale(pay_window_s=pay_window_s)

    sale.deliver(sale.reserve("ann"))

    waits = rows(
        "SELECT topic, extract(epoch FROM available_at - created_at) FROM messaging_outbox"
        " ORDER BY topic"
    )
    (_, event_s), (_, trigger_s) = waits
    assert [topic for topic, _ in waits] == [ORDER_EVENT, ORDER_TIMEOUT]
    assert event_s == 0
    assert least_s <= trigger_s <= most_s


def test_a_clean_batch_takes_nine_statements_whatever_its_size():
    sale = open_sale(units=100)
    reservations = sale.reserve_all([f"u{i}" for i in range(100)])
    statements: list[str] = []

    def record(execute, sql, params, many, context):
        statements.append(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(record):
        assert sale.deliver(*reservations) == [DONE] * 100

    data = [sql for sql in statements if "SAVEPOINT" not in sql]
    assert len(data) == 9
    # The hot rows are locked last, in key order, and changed once.
    assert "FOR NO KEY UPDATE" in data[-2]
    assert "UPDATE inventory_stock" in data[-1]


def test_expired_ones_are_rejected_inside_the_batch_and_the_rest_gets_its_orders():
    sale = open_sale()
    late = replace(sale.reserve("late"), valid_until_ms=1_700_000_000_000)
    good = [sale.reserve(f"u{i}") for i in range(3)]

    decisions = sale.deliver(good[0], late, *good[1:])

    assert decisions == [DONE, rejected("RESERVATION_EXPIRED"), DONE, DONE]
    assert sale.outcome(late) == ("REJECTED", "RESERVATION_EXPIRED", "DUE")
    assert rows(
        "SELECT outcome, reason FROM messaging_inbox WHERE message_id = %s", late.message_id
    ) == [("REJECTED", "RESERVATION_EXPIRED")]
    (release,) = outbox_messages(INVENTORY_COMPENSATE)
    body = msgspec.json.decode(release.body)
    assert (body["restock"], body["reason"]) == (True, "RESERVATION_EXPIRED")
    assert (
        one("SELECT count(*) FROM messaging_outbox WHERE tag = 'ORDER_REJECTED' AND lane = 1") == 1
    )
    assert (sale.orders(), sale.available()) == (3, 7)


def test_an_extension_row_lets_a_late_message_make_its_order():
    sale = open_sale(validity_ms=1)
    reservation = sale.reserve("ann")
    wait_past(reservation)
    execute(
        "INSERT INTO orders_extension (reservation_id, valid_until, reason, granted_by)"
        " VALUES (%s, clock_timestamp() + interval '1 hour', 'replay', 'lead')",
        reservation.reservation_id,
    )

    assert sale.deliver(reservation) == [DONE]
    assert sale.order_status(reservation) == "CREATED"


def test_an_extension_row_that_has_passed_itself_changes_nothing():
    sale = open_sale(validity_ms=1)
    reservation = sale.reserve("ann")
    wait_past(reservation)
    execute(
        "INSERT INTO orders_extension (reservation_id, valid_until, reason, granted_by)"
        " VALUES (%s, clock_timestamp() - interval '1 second', 'replay', 'lead')",
        reservation.reservation_id,
    )

    assert sale.deliver(reservation) == [rejected("RESERVATION_EXPIRED")]


def test_a_batch_that_stock_does_not_cover_raises_and_writes_nothing():
    sale = open_sale(units=2, gate_units=3)
    reservations = [sale.reserve(f"u{i}") for i in range(3)]

    with pytest.raises(OutOfStock):
        sale.deliver(*reservations)

    assert (sale.orders(), sale.available()) == (0, 2)
    assert one("SELECT count(*) FROM messaging_inbox") == 0


def test_alone_the_one_too_many_is_rejected_without_ever_having_been_an_order():
    sale = open_sale(units=2, gate_units=3)
    reservations = [sale.reserve(f"u{i}") for i in range(3)]

    decisions = [sale.deliver(r)[0] for r in reservations]

    assert decisions == [DONE, DONE, rejected("NO_FINAL_STOCK")]
    assert sale.outcome(reservations[2]) == ("REJECTED", "NO_FINAL_STOCK", "DUE")
    assert rows(
        "SELECT outcome, reason FROM messaging_inbox WHERE message_id = %s",
        reservations[2].message_id,
    ) == [("REJECTED", "NO_FINAL_STOCK")]
    assert (sale.orders(), sale.available(), sale.ledger_sum()) == (2, 0, 0)


def test_a_second_live_order_of_a_buyer_is_rejected_and_his_first_one_stays():
    sale = open_sale()
    first = sale.reserve("ann")
    second = with_ids(first, reservation_id=True)
    sale.deliver(first)

    with pytest.raises(OrderConflict):
        sale.deliver(second, sale.reserve("bob"))
    assert sale.deliver(second) == [rejected("DUPLICATE_ORDER")]

    assert sale.order_status(first) == "CREATED"
    assert sale.outcome(second) == ("REJECTED", "DUPLICATE_ORDER", "DUE")
    assert (sale.orders(), sale.available(), sale.ledger_sum()) == (1, 9, 9)


def test_case_10_one_reject_among_ten_leaves_the_other_nine_their_orders():
    sale = open_sale(units=20)
    first = sale.reserve("u0")
    sale.deliver(first)
    ten = [with_ids(first, reservation_id=True), *(sale.reserve(f"u{i}") for i in range(1, 10))]

    # When: the batch cannot be applied whole, the loop calls one by one.
    with pytest.raises(OrderConflict):
        sale.deliver(*ten)
    decisions = [sale.deliver(r)[0] for r in ten]

    assert decisions == [rejected("DUPLICATE_ORDER"), *[DONE] * 9]
    assert (sale.orders(), sale.available(), sale.ledger_sum()) == (10, 10, 10)


def test_a_void_sale_rejects():
    sale = open_sale()
    reservation = sale.reserve("ann")
    execute("UPDATE inventory_activity SET voided_at = now() WHERE id = %s", sale.activity_id)

    assert sale.deliver(reservation) == [rejected("ACTIVITY_VOIDED")]
    assert (sale.orders(), sale.available()) == (0, 10)


@pytest.mark.parametrize("status", ["PAUSED", "CLOSED"])
def test_pause_close_and_the_end_of_the_window_stop_new_reservations_only(status):
    sale = open_sale()
    reservation = sale.reserve("ann")
    execute(
        "UPDATE inventory_activity SET status = %s, ends_at = starts_at + interval '1 second'"
        " WHERE id = %s",
        status,
        sale.activity_id,
    )

    assert sale.deliver(reservation) == [DONE]


def test_a_message_for_a_sku_that_does_not_exist_is_quarantined_alone():
    sale = open_sale()
    good, bad = sale.reserve("ann"), replace(sale.reserve("bob"), sku_id=10**9)

    assert sale.deliver(good, bad) == [DONE, to_quarantine("UNKNOWN_SKU")]
    assert one("SELECT count(*) FROM messaging_inbox") == 1


def test_bad_bodies_are_quarantined_and_the_good_ones_keep_their_places():
    sale = open_sale()
    good = create_message(sale.reserve("ann"))
    garbage = received(topic=good.topic, body=b"{", message_id="evt_x")
    future = received(
        topic=good.topic,
        body=good.body.replace(b'"schema_version":1', b'"schema_version":9'),
        message_id="evt_y",
    )

    decisions = ORDER_CREATE_HANDLER.handle([garbage, good, future])

    assert [d.reason for d in decisions] == ["INVALID_JSON", "", "SCHEMA_UNSUPPORTED"]
    assert decisions[1] == DONE
    assert sale.orders() == 1


def test_expiry_is_judged_by_the_databases_clock():
    sale = open_sale()
    now = timezone.now()
    reservation = replace(
        sale.reserve("ann"), valid_until_ms=int((now + timedelta(minutes=1)).timestamp() * 1000)
    )
    # When: this process's clock is an hour ahead of the database's.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("django.utils.timezone.now", lambda: now + timedelta(hours=1))
        decision = sale.deliver(reservation)

    assert decision == [DONE]


def test_two_skus_of_one_batch_are_both_taken():
    sale = open_sale(units=5, skus=2)
    a, b = sale.sku_ids
    batch = [
        sale.reserve("ann", sku_id=b),
        sale.reserve("ann", sku_id=a),
        sale.reserve("bob", sku_id=b),
    ]

    assert sale.deliver(*batch) == [DONE] * 3
    assert (sale.available(a), sale.available(b)) == (4, 3)


def test_case_37_nothing_is_answered_that_is_not_committed(monkeypatch):
    sale = open_sale(units=10)
    made = sale.reserve_all([f"u{i}" for i in range(5)])

    def crash(point):
        assert point == "consumer.before_commit"
        raise RuntimeError(point)

    monkeypatch.setattr(create_order.faultpoint, "hit", crash)
    with pytest.raises(RuntimeError):
        sale.deliver(*made)
    assert (sale.orders(), sale.available(), sale.ledger_sum()) == (0, 10, 10)
    assert one("SELECT count(*) FROM messaging_inbox") == 0
    monkeypatch.undo()

    assert sale.deliver(*made) == [DONE] * 5


def test_the_transaction_may_not_be_nested():
    sale = open_sale()
    reservation = sale.reserve("ann")
    with transaction.atomic(), pytest.raises(RuntimeError, match="durable"):
        sale.deliver(reservation)


def test_limits_of_locks_and_statements_end_with_the_transaction(settings):
    settings.SECKILL_LOCK_TIMEOUT_MS = 50
    sale = open_sale()
    reservation = sale.reserve("ann")
    with psycopg.connect(**_target()) as other:
        other.execute("UPDATE inventory_stock SET withheld = 0")
        with pytest.raises(OperationalError) as caught:
            sale.deliver(reservation)
        assert classify(caught.value) is ErrorClass.CONTENTION

    assert one("SHOW lock_timeout") == "0"
    assert sale.deliver(reservation) == [DONE]


def _target():
    config = connection.settings_dict
    return {
        "host": config["HOST"],
        "port": config["PORT"],
        "user": config["USER"],
        "password": config["PASSWORD"],
        "dbname": config["NAME"],
    }


def test_a_damaged_body_is_held_by_what_the_gate_knows_of_its_reservation():
    sale = open_sale(limit_per_user=2)
    reservation = sale.reserve("ann", quantity=2)
    damaged = replace(create_message(reservation), body=b"{", keys=(reservation.reservation_id,))

    facts = ORDER_CREATE_HANDLER.facts(damaged)

    assert facts == BodyFacts(
        reservation_id=reservation.reservation_id,
        activity_id=sale.activity_id,
        sku_id=sale.sku_id,
        user_id="ann",
        quantity=2,
        valid_until=datetime.fromtimestamp(reservation.valid_until_ms / 1000, tz=UTC),
    )
    # A body that tells all needs no look at the gate, one that names nobody has none.
    assert ORDER_CREATE_HANDLER.facts(create_message(reservation)) is None
    assert ORDER_CREATE_HANDLER.facts(replace(damaged, keys=())) is None

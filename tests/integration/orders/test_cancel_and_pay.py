"""Ends of an unpaid order: cancelled by time, buyer or operator, or paid. One winner."""

import msgspec
import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.exceptions import PermissionDenied
from django.db import connection

from messaging.disposition import DONE
from messaging.topology import INVENTORY_COMPENSATE, ORDER_EVENT
from orders.cancel_order import (
    CancelResult,
    cancel_by_operator,
    cancel_by_user,
    cancel_unpaid,
)
from orders.errors import OrderNotFound, OrderStateConflict
from tests.fixtures.paid import pay_now
from tests.fixtures.sales import (
    make_overdue,
    open_sale,
    outbox_messages,
    run_releases,
    run_timeouts,
)
from tests.fixtures.sql import execute, one, rows

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]


def _result(*canceled, paid=0, not_expired=0, noop=0, missing=0):
    return CancelResult(
        canceled=canceled,
        noop_paid=paid,
        noop_not_expired=not_expired,
        noop_canceled=noop,
        noop_missing=missing,
    )


def test_an_overdue_order_is_cancelled_with_all_that_belongs_to_it():
    sale = open_sale(units=5, limit_per_user=2)
    reservation = sale.reserve("ann", quantity=2)
    sale.deliver(reservation)
    make_overdue(reservation)

    assert cancel_unpaid([reservation.order_id]) == _result(reservation.order_id)

    assert rows(
        "SELECT status, cancel_reason, aggregate_version, canceled_at IS NOT NULL FROM orders_order"
    ) == [("CANCELED", "PAYMENT_TIMEOUT", 2, True)]
    assert (sale.available(), sale.ledger_sum()) == (5, 5)
    assert rows(
        "SELECT kind, delta, units FROM inventory_stockledger WHERE source_id = %s ORDER BY id",
        reservation.order_id,
    ) == [("SALE", -2, 2), ("RESTOCK", 2, 2)]
    assert sale.outcome(reservation) == ("ORDERED", "", "DUE")
    (release,) = (msgspec.json.decode(m.body) for m in outbox_messages(INVENTORY_COMPENSATE))
    assert (release["restock"], release["reason"]) == (True, "PAYMENT_TIMEOUT")
    (event,) = (
        msgspec.json.decode(m.body) for m in outbox_messages(ORDER_EVENT, tag="ORDER_CANCELED")
    )
    assert (event["aggregate_version"], event["payload"]["status"]) == (2, "CANCELED")
    assert event["payload"]["reason"] == "PAYMENT_TIMEOUT"


def test_what_is_not_due_is_left_alone_and_counted_apart():
    sale = open_sale(units=5)
    paid, _young, canceled, overdue = made = [sale.reserve(f"u{i}") for i in range(4)]
    sale.deliver(*made)
    make_overdue(paid, canceled, overdue)
    pay_now(order_id=paid.order_id, payment_id="p1")
    cancel_unpaid([canceled.order_id])

    result = cancel_unpaid([*(r.order_id for r in made), overdue.order_id, "ord_unknown"])

    assert result == _result(overdue.order_id, paid=1, not_expired=1, noop=1, missing=1)
    assert [sale.order_status(r) for r in made] == ["PAID", "CREATED", "CANCELED", "CANCELED"]
    assert (sale.available(), sale.ledger_sum()) == (3, 3)


def test_case_27_the_trigger_delivered_three_times_releases_once():
    sale = open_sale(units=3)
    reservation = sale.reserve("ann")
    sale.deliver(reservation)
    make_overdue(reservation)

    assert [run_timeouts() for _ in range(3)] == [[DONE]] * 3
    run_releases()
    run_releases()

    assert (sale.available(), sale.ledger_sum(), sale.gate_stock()) == (3, 3, 3)
    assert one("SELECT count(*) FROM messaging_outbox WHERE tag = 'RELEASE_RESERVATION'") == 1


def test_orders_are_locked_before_stock_and_stock_last():
    sale = open_sale(units=5)
    made = [sale.reserve(f"u{i}") for i in range(3)]
    sale.deliver(*made)
    make_overdue(*made)
    statements: list[str] = []

    def record(execute, sql, params, many, context):
        statements.append(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(record):
        cancel_unpaid([r.order_id for r in made])

    locks = [" ".join(s.split())[:40] for s in statements if "FOR NO KEY UPDATE" in s]
    assert [
        ("orders_order" in s, "inventory_stock" in s) for s in statements if "FOR NO KEY" in s
    ] == [
        (True, False),
        (False, True),
    ], locks
    assert "UPDATE inventory_stock" in statements[-1]


def test_a_buyer_cancels_his_own_order_only():
    sale = open_sale()
    reservation = sale.reserve("ann")
    sale.deliver(reservation)

    with pytest.raises(OrderNotFound):
        cancel_by_user(order_id=reservation.order_id, user_id="bob")
    order = cancel_by_user(order_id=reservation.order_id, user_id="ann")

    assert (order.status, order.reason, order.version) == ("CANCELED", "USER", 2)
    with pytest.raises(OrderStateConflict, match="CANCELED"):
        cancel_by_user(order_id=reservation.order_id, user_id="ann")
    assert sale.available() == 10


def test_an_operator_needs_the_permission_and_may_withhold_the_units():
    sale = open_sale()
    reservation = sale.reserve("ann")
    sale.deliver(reservation)
    user = get_user_model().objects.create_user("op")

    with pytest.raises(PermissionDenied):
        cancel_by_operator(order_id=reservation.order_id, user=user, reason="fraud", restock=False)
    assert sale.order_status(reservation) == "CREATED"

    user.user_permissions.add(Permission.objects.get(codename="cancel_order"))
    user = get_user_model().objects.get(pk=user.pk)
    with pytest.raises(ValueError, match="reason"):
        cancel_by_operator(order_id=reservation.order_id, user=user, reason=" ")
    cancel_by_operator(order_id=reservation.order_id, user=user, reason="fraud", restock=False)

    assert (sale.available(), sale.ledger_sum()) == (9, 9)
    assert one("SELECT withheld FROM inventory_stock WHERE sku_id = %s", sale.sku_id) == 1
    # The buyer is freed all the same, the gate's stock does not grow.
    assert run_releases() == [DONE]
    assert (sale.holders(), sale.gate_stock()) == ({}, 9)


def test_a_payment_wins_once():
    sale = open_sale()
    reservation = sale.reserve("ann")
    sale.deliver(reservation)

    first = pay_now(order_id=reservation.order_id, payment_id="p1")

    assert (first.status, first.version, first.payment_id) == ("PAID", 2, "p1")
    assert len(outbox_messages(ORDER_EVENT, tag="ORDER_PAID")) == 1
    for payment_id in ("p1", "p2"):
        with pytest.raises(OrderStateConflict, match="PAID"):
            pay_now(order_id=reservation.order_id, payment_id=payment_id)
    assert one("SELECT payment_id FROM orders_order") == "p1"
    assert one("SELECT count(*) FROM messaging_outbox WHERE tag = 'ORDER_PAID'") == 1


def test_a_payment_past_expiry_is_accepted_while_the_order_is_not_cancelled():
    sale = open_sale()
    reservation = sale.reserve("ann")
    sale.deliver(reservation)
    make_overdue(reservation)

    assert pay_now(order_id=reservation.order_id, payment_id="p1").status == "PAID"
    assert cancel_unpaid([reservation.order_id]) == _result(paid=1)


def test_a_payment_of_a_cancelled_order_is_refused():
    sale = open_sale()
    reservation = sale.reserve("ann")
    sale.deliver(reservation)
    make_overdue(reservation)
    cancel_unpaid([reservation.order_id])

    with pytest.raises(OrderStateConflict, match="CANCELED"):
        pay_now(order_id=reservation.order_id, payment_id="p1")
    assert outbox_messages(ORDER_EVENT, tag="ORDER_PAID") == []


def test_the_buyer_of_a_cancelled_order_may_buy_again():
    sale = open_sale(units=1)
    first = sale.reserve("ann")
    sale.deliver(first)
    make_overdue(first)
    cancel_unpaid([first.order_id])
    run_releases()

    second = sale.reserve("ann")

    assert sale.deliver(second) == [DONE]
    assert (sale.order_status(first), sale.order_status(second)) == ("CANCELED", "CREATED")
    assert (sale.available(), sale.ledger_sum(), sale.gate_stock()) == (0, 0, 0)


def test_paid_and_cancelled_at_once_is_impossible_in_the_table():
    sale = open_sale()
    reservation = sale.reserve("ann")
    sale.deliver(reservation)

    with pytest.raises(Exception, match="orders_order_paid_ck"):
        execute("UPDATE orders_order SET status = 'CANCELED', canceled_at = now(), paid_at = now()")

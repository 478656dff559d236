"""Refunds at the real provider process: one for each captured attempt that is not kept."""

from dataclasses import replace

import pytest
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied

from messaging.topology import ORDER_EVENT
from orders.errors import OrderStateConflict
from orders.models import PaymentAttempt
from orders.payments import providers
from orders.payments.attempts import _attempt, record_answer, start_payment
from orders.payments.drive_refunds import claim_due, drive
from orders.payments.money import compare_book
from orders.payments.refunds import refund_order, retry_failed
from orders.scan.refunds import RefundsJob
from tests.fixtures.payments import (
    assert_money_exact,
    open_items,
    pass_window,
    refunds,
    run_jobs,
    settle_all,
)
from tests.fixtures.sales import (
    at_once,
    open_sale,
    outbox_messages,
    run_releases,
)
from tests.fixtures.sql import execute, one, rows

pytestmark = pytest.mark.django_db
PRICE = 1999


@pytest.fixture
def sale(committed):
    return open_sale(units=1, price_cents=PRICE)


@pytest.fixture
def paid(sandbox, sale):
    reservation = sale.reserve("ann")
    sale.deliver(reservation)
    start_payment(order_id=reservation.order_id, user_id="ann")
    return reservation.order_id


def _status(order_id):
    return one("SELECT status FROM orders_order WHERE order_id = %s", order_id)


@pytest.mark.parametrize("restock", [True, False])
def test_an_operator_refunds_a_paid_order(sandbox, sale, paid, operator, restock):
    refund_order(order_id=paid, user=operator, reason="broken thing", restock=restock)
    assert (_status(paid), refunds(paid)) == ("REFUNDING", [("OPERATOR", "DUE")])
    assert assert_money_exact(sandbox).refund_due == PRICE
    assert sale.available() == 0

    settle_all()

    assert (_status(paid), refunds(paid)) == ("REFUNDED", [("OPERATOR", "SUCCEEDED")])
    assert rows("SELECT requested_by, note FROM orders_refund") == [("olga", "broken thing")]
    assert sandbox.net_cents(paid) == 0
    assert assert_money_exact(sandbox).refunded == PRICE
    assert sale.available() == int(restock)
    assert one("SELECT withheld FROM inventory_stock") == int(not restock)
    tags = [message.tag for message in outbox_messages(ORDER_EVENT)]
    assert tags == ["ORDER_CREATED", "ORDER_PAID", "ORDER_REFUNDED"]
    run_releases()
    assert sale.gate_stock() == int(restock)
    assert sale.holders() == {}  # the buyer is free either way


@pytest.mark.parametrize("fault", ["timeout_after", "error_after", "error_before", "late_accept"])
def test_a_refund_without_an_answer_happens_once(sandbox, sale, paid, operator, fault):
    refund_order(order_id=paid, user=operator, reason="test", restock=True)
    sandbox.arm("refund", fault, reference=paid, delay_ms=600)

    run_jobs()
    assert refunds(paid) == [("OPERATOR", "SUBMIT_UNKNOWN")]
    assert assert_money_exact(sandbox, at_rest=False).refund_unknown == PRICE
    settle_all()

    assert (_status(paid), refunds(paid)) == ("REFUNDED", [("OPERATOR", "SUCCEEDED")])
    assert len(sandbox.entries(paid, "refund")) == 1
    assert (sale.available(), sandbox.net_cents(paid)) == (1, 0)
    assert_money_exact(sandbox)


def test_refund_twice_at_once_returns_money_and_stock_once(sandbox, sale, paid, operator):
    """Case 19."""

    def refund():
        return refund_order(order_id=paid, user=operator, reason="twice", restock=True)

    results = at_once([refund] * 4)
    settle_all()

    assert sum(isinstance(r, str) for r in results) == 1
    assert sum(isinstance(r, OrderStateConflict) for r in results) == 3
    assert len(sandbox.entries(paid, "refund")) == 1
    assert sale.available() == 1
    assert rows(
        "SELECT kind, sum(delta)::int FROM inventory_stockledger WHERE source_id = %s"
        " GROUP BY kind ORDER BY kind",
        paid,
    ) == [("RESTOCK", 1), ("SALE", -1)]
    assert_money_exact(sandbox)


def test_two_scanners_send_a_refund_once(sandbox, sale, paid, operator):
    refund_order(order_id=paid, user=operator, reason="test", restock=True)

    at_once([run_jobs] * 3)
    settle_all()

    assert len(sandbox.entries(paid, "refund")) == 1
    assert (sale.available(), refunds(paid)) == (1, [("OPERATOR", "SUCCEEDED")])
    assert_money_exact(sandbox)


def test_a_refused_refund_is_never_silent_and_can_be_tried_again(sandbox, paid, operator):
    refund_id = refund_order(order_id=paid, user=operator, reason="test", restock=True)
    sandbox.arm("refund", "decline", reference=paid)
    run_jobs()
    assert (_status(paid), refunds(paid)) == ("REFUNDING", [("OPERATOR", "FAILED")])
    assert open_items() == [("REFUND", "REFUND_FAILED")]
    assert assert_money_exact(sandbox).refund_due == PRICE

    retry_failed(refund_id=refund_id, user=operator)
    assert open_items() == []
    settle_all()

    assert (_status(paid), refunds(paid)) == ("REFUNDED", [("OPERATOR", "SUCCEEDED")])
    assert [e["status"] for e in sandbox.entries(paid, "refund")] == ["FAILED", "SUCCEEDED"]
    assert_money_exact(sandbox)


def test_who_may_not_refund_changes_nothing(sandbox, paid):
    nobody = get_user_model().objects.create_user("nobody")

    with pytest.raises(PermissionDenied):
        refund_order(order_id=paid, user=nobody, reason="please", restock=True)
    with pytest.raises(PermissionDenied):
        retry_failed(refund_id="rfd_x", user=nobody)

    assert (_status(paid), refunds(paid)) == ("PAID", [])


def test_a_reason_is_needed(sandbox, paid, operator):
    with pytest.raises(ValueError, match="reason"):
        refund_order(order_id=paid, user=operator, reason=" ", restock=True)
    assert refunds(paid) == []


def test_the_buyer_of_a_refunded_order_may_buy_again(sandbox, sale, paid, operator):
    refund_order(order_id=paid, user=operator, reason="wrong size", restock=True)
    settle_all()
    run_releases()

    again = sale.reserve("ann")
    sale.deliver(again)
    start_payment(order_id=again.order_id, user_id="ann")

    assert (_status(again.order_id), sale.available()) == ("PAID", 0)
    money = assert_money_exact(sandbox)
    assert (money.money_in, money.kept, money.refunded) == (2 * PRICE, PRICE, PRICE)


def test_only_the_refund_of_the_kept_payment_ends_the_order(sandbox, sale, operator):
    """A second capture goes back while the order itself is being refunded: two refunds, one end."""
    reservation = sale.reserve("ann")
    sale.deliver(reservation)
    order_id = reservation.order_id
    sandbox.arm("create_payment", "timeout_after", reference=order_id)
    sandbox.arm("query_payment", "not_found", reference=order_id)
    start_payment(order_id=order_id, user_id="ann")
    pass_window(order_id)
    run_jobs()  # FAILED, though it was charged
    start_payment(order_id=order_id, user_id="ann")
    (difference,) = compare_book(providers.current()).differences
    found = providers.current().query_payment(key=difference.key)
    first = PaymentAttempt.objects.get(pk=difference.key)
    record_answer(_attempt(first), found)
    execute("UPDATE orders_refund SET next_try_at = now() - interval '1 s'")
    refund_order(order_id=order_id, user=operator, reason="all of it", restock=True)
    sandbox.arm("refund", "decline", times=1)  # the newer one: the order's own

    (second, own) = claim_due(10)
    drive(own, providers.current())
    drive(second, providers.current())

    assert refunds(order_id) == [("SECOND_CAPTURE", "SUCCEEDED"), ("OPERATOR", "FAILED")]
    assert (_status(order_id), sale.available()) == ("REFUNDING", 0)
    retry_failed(refund_id=own.refund_id, user=operator)
    settle_all()
    assert (_status(order_id), sale.available()) == ("REFUNDED", 1)
    assert sandbox.net_cents(order_id) == 0
    assert assert_money_exact(sandbox).refunded == 2 * PRICE


def test_a_refund_of_another_amount_is_not_settled(paid, operator, monkeypatch):
    refund_order(order_id=paid, user=operator, reason="test", restock=True)
    provider = providers.current()
    real = provider.refund
    monkeypatch.setattr(
        provider, "refund", lambda **how: replace(real(**how), amount_cents=PRICE - 1)
    )
    monkeypatch.setattr(providers, "named", lambda name: provider)

    RefundsJob().run_once()

    assert one("SELECT status FROM orders_refund") == "SUBMIT_UNKNOWN"
    assert open_items() == [("REFUND", "AMOUNT_MISMATCH")]
    assert _status(paid) == "REFUNDING"

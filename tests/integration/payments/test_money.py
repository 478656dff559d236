"""The money check notices what it is for: each wrong row, and each difference of the two books."""

from collections import Counter
from typing import Any

import pytest
from django.db import connection

from orders.payments import attempts as machine
from orders.payments import providers
from orders.payments.attempts import start_payment
from orders.payments.money import compare_book, money_breaches, money_table
from orders.reconcile import money_side
from orders.reconcile.difference import Scope
from tests.fixtures.payments import pass_window, run_jobs
from tests.fixtures.sales import open_sale
from tests.fixtures.sql import execute, one

pytestmark = pytest.mark.django_db
PRICE = 1999


@pytest.fixture
def sale(sandbox):
    return open_sale(units=5, price_cents=PRICE)


@pytest.fixture
def paid(sale):
    reservation = sale.reserve("ann")
    sale.deliver(reservation)
    start_payment(order_id=reservation.order_id, user_id="ann")
    return reservation.order_id


def _attempt(**columns):
    values = {
        "status": "'SUCCEEDED'",
        "provider_payment_id": "'second'",
        "amount_cents": str(PRICE),
    } | columns
    execute(
        "INSERT INTO orders_payment_attempt (attempt_id, order_id, attempt_no, provider,"  # noqa: S608
        " provider_payment_id, amount_cents, currency, status, submitted_at, submit_count, tries,"
        " settled_at, error_class) SELECT 'pay_2', order_id, 2, 'sandbox',"
        f" {values['provider_payment_id']}, {values['amount_cents']}, 'EUR', {values['status']},"
        " now(), 1, 0, now(), '' FROM orders_order"
    )


def test_the_table_of_one_sale(sale, paid):
    other = open_sale(units=1)

    (row,) = money_table(sale.activity_id)

    assert (row.currency, row.money_in, row.kept, row.refunded, row.refund_due) == (
        "EUR",
        PRICE,
        PRICE,
        0,
        0,
    )
    assert row.at_rest
    assert money_table(other.activity_id) == []
    assert money_breaches(sale.activity_id) == []


_ELSEWHERE = """
INSERT INTO orders_order (order_id, reservation_id, request_id, activity_id, sku_id, user_id,
    quantity, amount_cents, currency, status, aggregate_version, expires_at, paid_at, payment_id,
    cancel_reason, traceparent)
SELECT 'ord_' || n, 'rsv_' || n, 'req_' || n, %s, 1, 'u' || n, 1, 100, 'EUR', 'REFUNDED', 4, now(),
    now(), 'pay_' || n, '', '' FROM generate_series(1, 3000) n
"""
_ELSEWHERE_PAID = """
INSERT INTO orders_payment_attempt (attempt_id, order_id, attempt_no, provider,
    provider_payment_id, amount_cents, currency, status, submitted_at, submit_count, tries,
    settled_at, error_class)
SELECT payment_id, order_id, 1, 'sandbox', payment_id, 100, 'EUR', 'SUCCEEDED', now(), 1, 0, now(),
    '' FROM orders_order WHERE activity_id = %s
"""
_ELSEWHERE_REFUNDED = """
INSERT INTO orders_refund (refund_id, attempt_id, order_id, provider, provider_key,
    provider_refund_id, amount_cents, currency, reason, restock, note, requested_by, status,
    submitted_at, submit_count, tries, settled_at, error_class)
SELECT 'ref_' || order_id, payment_id, order_id, 'sandbox', payment_id, payment_id, 100, 'EUR',
    'OPERATOR', true, '', '', 'SUCCEEDED', now(), 1, 0, now(), ''
FROM orders_order WHERE activity_id = %s
"""


def _rows_read(node: dict[str, Any], read: Counter[str]) -> Counter[str]:
    """Add up the rows that a plan took from each table."""
    if "Relation Name" in node:
        rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
        read[node["Relation Name"]] += node["Actual Loops"] * rows
    for child in node.get("Plans", ()):
        _rows_read(child, read)
    return read


def test_one_sale_does_not_read_the_money_of_the_others(sale, paid):
    """3 000 payments and refunds elsewhere; every statement's plan begins at the sale's orders."""
    other = open_sale(units=1).activity_id
    for sql in (_ELSEWHERE, _ELSEWHERE_PAID, _ELSEWHERE_REFUNDED):
        execute(sql, other)
    execute("ANALYZE orders_order, orders_payment_attempt, orders_refund")
    read: list[Counter[str]] = []

    def explain(run, sql, params, many, context):
        with connection.connection.cursor() as cursor:  # below the wrapper
            cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", params)
            ((plan,),) = cursor.fetchall()
        read.append(_rows_read(plan[0]["Plan"], Counter()))
        return run(sql, params, many, context)

    with connection.execute_wrapper(explain):
        (row,) = money_table(sale.activity_id)
        assert money_breaches(sale.activity_id) == []

    assert (row.money_in, row.kept, row.refunded) == (PRICE, PRICE, 0)
    assert len(read) == 3
    for one_read in read:
        assert one_read["orders_payment_attempt"] <= 2, read
        assert one_read["orders_refund"] <= 2, read
    (everything,) = money_table()
    assert (everything.money_in, everything.refunded) == (300_000 + PRICE, 300_000)
    assert money_breaches() == []


def test_only_the_reconciler_of_all_sales_may_take_long(sale, monkeypatch):
    limits = []

    def look(activity_id):
        limits.append(one("SHOW statement_timeout"))
        return []

    monkeypatch.setattr(money_side, "money_breaches", look)
    usual = one("SHOW statement_timeout")

    money_side.find(Scope(activity_id=sale.activity_id, sales=[], serving=[]))
    money_side.find(Scope(activity_id=None, sales=[], serving=[]))

    assert limits == [usual, "10min"]
    assert one("SHOW statement_timeout") == usual != "10min"


@pytest.mark.parametrize(
    "sql",
    [
        # paid by nothing
        "UPDATE orders_payment_attempt SET status = 'FAILED'",
        "UPDATE orders_order SET payment_id = 'pay_other'",
        # captured, but cancelled without a refund
        "UPDATE orders_order SET status = 'CANCELED', canceled_at = now(), paid_at = NULL",
        # ended without the money going back
        "UPDATE orders_order SET status = 'REFUNDED'",
        "UPDATE orders_order SET status = 'REFUNDING'",
        # a cent too little
        "UPDATE orders_payment_attempt SET amount_cents = amount_cents - 1",
        "UPDATE orders_order SET amount_cents = amount_cents + 1",
    ],
)
def test_each_wrong_row_is_a_breach(sale, paid, sql):
    assert money_breaches(sale.activity_id) == []

    execute(sql)

    assert any(paid in line for line in money_breaches(sale.activity_id))
    assert any(paid in line for line in money_breaches())


def test_a_second_capture_without_a_refund_is_a_breach(sale, paid):
    _attempt()

    (line,) = money_breaches(sale.activity_id)

    assert line == (
        f"order {paid}: in {2 * PRICE} is not kept {PRICE} + refunded 0 + due 0 + unknown 0 (cents)"
    )


def test_the_providers_book_knows_a_charge_that_we_believe_failed(sandbox, sale):
    reservation = sale.reserve("ann")
    sale.deliver(reservation)
    order_id = reservation.order_id
    sandbox.arm("create_payment", "timeout_after", reference=order_id)
    sandbox.arm("query_payment", "not_found", reference=order_id)
    start_payment(order_id=order_id, user_id="ann")
    assert list(compare_book(providers.current()).differences) == []  # open: no difference yet
    pass_window(order_id)
    run_jobs()

    (difference,) = compare_book(providers.current(), page=1).differences

    assert (difference.kind, difference.order_id) == ("STATE", order_id)
    assert (difference.ours, difference.theirs) == ("FAILED", "SUCCEEDED")
    # What it names is enough to settle it: the order is still unpaid and keeps the money.
    answer = providers.current().query_payment(key=difference.key)
    machine.record_answer(machine._attempt(machine.PaymentAttempt.objects.get()), answer)
    assert one("SELECT status FROM orders_order") == "PAID"
    assert list(compare_book(providers.current()).differences) == []


def test_missing_on_either_side(sandbox, paid):
    _attempt(status="'SUCCEEDED'")
    provider = providers.current()
    provider.create_payment(key="pay_3", reference=paid, amount_cents=PRICE, currency="EUR")
    provider.create_payment(key="k9", reference="ord_foreign", amount_cents=1, currency="EUR")

    comparison = compare_book(provider)

    assert {(d.kind, d.key) for d in comparison.differences} == {
        ("MISSING_THERE", "pay_2"),
        ("MISSING_HERE", "pay_3"),
    }
    assert comparison.foreign >= 1

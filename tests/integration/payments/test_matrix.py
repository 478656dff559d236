"""Every transition from every state, in PostgreSQL: what is not allowed changes nothing."""

import pytest
from django.db import IntegrityError, connection, transaction

from orders.cancel_order import cancel_by_user
from orders.database import begin
from orders.errors import OrderStateConflict
from orders.payments import attempts as machine
from orders.payments import drive_refunds as refund_machine
from orders.payments.attempts import start_payment
from orders.payments.drive_refunds import DueRefund
from orders.payments.money import money_breaches
from orders.payments.port import Answer, Outcome, ProviderState
from orders.payments.refunds import begin_refund
from orders.payments.states import (
    ATTEMPT_ALLOWED,
    REFUND_ALLOWED,
    AttemptStatus,
    RefundReason,
    RefundStatus,
)
from orders.states import ORDER_ALLOWED, OrderStatus
from tests.fixtures.sales import open_sale
from tests.fixtures.sql import execute, one, rows

pytestmark = pytest.mark.django_db
PRICE = 1999
SETTLED = ("SUCCEEDED", "FAILED")


@pytest.fixture
def order_id(sandbox):
    sale = open_sale(units=2, price_cents=PRICE)
    reservation = sale.reserve("ann")
    sale.deliver(reservation)
    return reservation.order_id


@pytest.fixture
def paid(order_id):
    start_payment(order_id=order_id, user_id="ann")
    return order_id


def _answer(outcome, state=None, provider_id="x1"):
    return Answer(
        outcome=outcome,
        state=state,
        provider_id=provider_id,
        amount_cents=PRICE,
        currency="EUR",
        error_class="TEST",
    )


ANSWERS = {
    "SUBMITTED": _answer(Outcome.OK, ProviderState.PENDING),
    "SUBMIT_UNKNOWN": _answer(Outcome.UNKNOWN),
    "SUCCEEDED": _answer(Outcome.OK, ProviderState.SUCCEEDED),
    "FAILED": _answer(Outcome.DEFINITE),
}


def _force(table, status, id_column):
    settled = status in SETTLED
    execute(
        f"UPDATE {table} SET status = %s, settled_at = CASE WHEN %s THEN now() END,"  # noqa: S608
        # Clearly due: the service reads its clock to the millisecond.
        " next_try_at = CASE WHEN %s THEN NULL ELSE now() - interval '1 s' END,"
        " submitted_at = now(),"
        f" {id_column} = CASE WHEN %s = 'SUCCEEDED' THEN 'x0' END",
        status,
        settled,
        settled,
        status,
    )


@pytest.mark.parametrize("target", sorted(ANSWERS))
@pytest.mark.parametrize("source", list(AttemptStatus))
def test_attempt(sandbox, order_id, source, target):
    sandbox.arm("create_payment", "error_before", reference=order_id)
    start_payment(order_id=order_id, user_id="ann")
    _force("orders_payment_attempt", source.value, "provider_payment_id")
    attempt = machine._attempt(machine.PaymentAttempt.objects.get())

    machine.record_answer(attempt, ANSWERS[target])

    now = one("SELECT status FROM orders_payment_attempt")
    allowed = AttemptStatus(target) in ATTEMPT_ALLOWED[source]
    assert now == (target if allowed else source.value)
    if target == "SUCCEEDED":
        status = one("SELECT status FROM orders_order")
        assert status == ("PAID" if allowed else "PAYING")


@pytest.mark.parametrize("target", sorted(ANSWERS))
@pytest.mark.parametrize("source", list(RefundStatus))
def test_refund(paid, source, target):
    refund_id = begin_refund(
        order_id=paid, reason=RefundReason.OPERATOR, restock=True, requested_by="o", note="n"
    )
    _force("orders_refund", source.value, "provider_refund_id")
    due = DueRefund(
        refund_id=refund_id,
        order_id=paid,
        provider="sandbox",
        provider_key=refund_id,
        provider_payment_id="p",
        amount_cents=PRICE,
        currency="EUR",
        status=source,
    )
    if target == "SUBMITTED":
        refund_machine.claim_due(10)
    else:
        refund_machine.record_answer(due, ANSWERS[target])

    allowed = RefundStatus(target) in REFUND_ALLOWED[source]
    assert one("SELECT status FROM orders_refund") == (target if allowed else source.value)
    ended = one("SELECT status FROM orders_order") == "REFUNDED"
    assert ended is (target == "SUCCEEDED" and allowed)


# What each service makes of an order, and from where: the guard of its UPDATE.
MOVES = {
    "PAYING": lambda o: start_payment(order_id=o, user_id="ann"),
    "PAID": lambda o: _capture(o),
    "CANCELED": lambda o: cancel_by_user(order_id=o, user_id="ann"),
    "REFUNDING": lambda o: begin_refund(
        order_id=o, reason=RefundReason.OPERATOR, restock=True, requested_by="o", note="n"
    ),
    "REFUNDED": lambda o: _refunded(),
}


def _capture(order_id):
    attempt_id = one("SELECT attempt_id FROM orders_payment_attempt ORDER BY attempt_no LIMIT 1")
    with transaction.atomic(durable=True):
        machine.capture(
            attempt_id=attempt_id,
            provider_payment_id="late",
            amount_cents=PRICE,
            currency="EUR",
            now=begin(),
        )


def _refunded():
    key = one("SELECT provider_key FROM orders_refund")
    execute("UPDATE orders_refund SET status = 'SUBMITTED', submitted_at = now()")
    with transaction.atomic(durable=True):
        refund_machine.succeed(
            provider="sandbox", provider_key=key, provider_refund_id="r", now=begin()
        )


@pytest.mark.parametrize("target", sorted(MOVES))
@pytest.mark.parametrize("source", list(OrderStatus))
def test_order(sandbox, order_id, source, target):
    """The order in each state; whichever service is called, only an allowed move happens."""
    sandbox.arm("create_payment", "decline", reference=order_id)
    start_payment(order_id=order_id, user_id="ann")  # a FAILED attempt that may still be captured
    attempt_id = one("SELECT attempt_id FROM orders_payment_attempt")
    was_paid = source in ("PAID", "FULFILLING", "FULFILLED", "REFUNDING", "REFUNDED")
    execute(
        "UPDATE orders_order SET status = %s, paid_at = CASE WHEN %s THEN now() END,"
        " canceled_at = CASE WHEN %s THEN now() END, payment_id = %s",
        source.value,
        was_paid,
        source == "CANCELED",
        attempt_id,
    )
    if target == "REFUNDED":
        execute(
            "INSERT INTO orders_refund (refund_id, attempt_id, order_id, provider, provider_key,"
            " amount_cents, currency, reason, restock, note, requested_by, status, submit_count,"
            " next_try_at, tries, error_class) VALUES ('rfd_x', %s, %s, 'sandbox', 'rfd_x', %s,"
            " 'EUR', 'OPERATOR', true, '', '', 'DUE', 1, now(), 0, '')",
            attempt_id,
            order_id,
            PRICE,
        )
    version = one("SELECT aggregate_version FROM orders_order")
    sandbox.arm("create_payment", "pending", reference=order_id, delay_ms=60_000)

    refused = False
    try:
        MOVES[target](order_id)
    except OrderStateConflict:
        refused = True

    ((now, new_version),) = rows("SELECT status, aggregate_version FROM orders_order")
    allowed = OrderStatus(target) in ORDER_ALLOWED[source]
    assert now == (target if allowed else source.value)
    assert new_version == version + allowed
    assert not (refused and allowed)
    if target == "PAID" and not allowed:  # money that the order does not keep is owed
        assert rows("SELECT status FROM orders_refund") == [("DUE",)]


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE orders_payment_attempt SET settled_at = NULL",
        "UPDATE orders_payment_attempt SET provider_payment_id = NULL",
        "UPDATE orders_payment_attempt SET status = 'SUBMITTED'",
        "UPDATE orders_payment_attempt SET amount_cents = 0",
        "UPDATE orders_refund SET status = 'SUCCEEDED'",
        "UPDATE orders_refund SET status = 'SUBMITTED'",
        "UPDATE orders_refund SET next_try_at = NULL",
        "UPDATE orders_order SET status = 'CANCELED'",
        "UPDATE orders_order SET paid_at = NULL",
    ],
)
def test_checks_tie_a_status_to_its_times(paid, sql):
    begin_refund(
        order_id=paid, reason=RefundReason.OPERATOR, restock=True, requested_by="o", note="n"
    )

    with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql)

    assert money_breaches() == []

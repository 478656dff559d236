"""A payment or refund that cannot be driven: put off ever longer, then a person's; others go on."""

from dataclasses import replace

import pytest

from orders.payments import attempts as machine
from orders.payments import drive_refunds, providers
from orders.payments.attempts import start_payment
from orders.payments.refunds import begin_refund
from orders.payments.states import ITEM_AFTER_TRIES, RefundReason
from orders.scan.payments import PaymentsJob
from tests.fixtures.payments import make_due, open_items, refunds, run_jobs, settle_all
from tests.fixtures.sales import open_sale
from tests.fixtures.sql import one, rows

pytestmark = pytest.mark.django_db


@pytest.fixture
def sale(committed):
    return open_sale(units=2)


def _paid_order(sale, user):
    reservation = sale.reserve(user)
    sale.deliver(reservation)
    start_payment(order_id=reservation.order_id, user_id=user)
    return reservation.order_id


def test_an_answer_that_cannot_be_stored_is_put_off_and_at_last_an_item(sandbox, sale, monkeypatch):
    sandbox.arm("create_payment", "timeout_after", times=2)
    _paid_order(sale, "ann")
    _paid_order(sale, "bob")
    bad = one("SELECT attempt_id FROM orders_payment_attempt ORDER BY attempt_id LIMIT 1")
    provider = providers.current()
    real = provider.query_payment
    monkeypatch.setattr(
        provider,
        "query_payment",
        lambda *, key: (
            replace(real(key=key), provider_id="x" * 65) if key == bad else real(key=key)
        ),
    )

    assert run_jobs() >= 2
    assert rows("SELECT status, error_class FROM orders_payment_attempt ORDER BY attempt_id") == [
        ("SUBMIT_UNKNOWN", "DataError"),
        ("SUCCEEDED", ""),
    ]
    assert PaymentsJob().run_once() == 0  # put off
    assert open_items() == []
    for _ in range(ITEM_AFTER_TRIES):
        run_jobs()
    assert open_items() == [("PAYMENT", "CANNOT_BE_DRIVEN")]
    monkeypatch.setattr(provider, "query_payment", real)
    settle_all()
    assert open_items() == []


def test_a_refund_of_a_provider_that_was_removed(sandbox, sale, settings):
    order_id = _paid_order(sale, "ann")
    begin_refund(
        order_id=order_id, reason=RefundReason.OPERATOR, restock=True, requested_by="o", note="n"
    )
    configured = settings.SECKILL_PAYMENT_PROVIDERS
    settings.SECKILL_PAYMENT_PROVIDERS = {}

    for _ in range(ITEM_AFTER_TRIES + 1):
        run_jobs()

    assert refunds(order_id) == [("OPERATOR", "SUBMIT_UNKNOWN")]
    assert open_items() == [("REFUND", "CANNOT_BE_DRIVEN")]
    settings.SECKILL_PAYMENT_PROVIDERS = configured
    settle_all()
    assert refunds(order_id) == [("OPERATOR", "SUCCEEDED")]
    assert open_items() == []


def test_a_long_name_of_what_was_wrong_is_cut(sandbox, sale):
    sandbox.arm("create_payment", "error_before")
    order_id = _paid_order(sale, "ann")
    make_due()
    (attempt,) = machine.claim_due(10)

    machine.set_aside(attempt, "E" * 41)

    assert one("SELECT error_class FROM orders_payment_attempt") == "E" * 40
    settle_all()
    begin_refund(
        order_id=order_id, reason=RefundReason.OPERATOR, restock=True, requested_by="o", note="n"
    )
    (refund,) = drive_refunds.claim_due(10)
    drive_refunds.set_aside(refund, "E" * 41)
    assert one("SELECT error_class FROM orders_refund") == "E" * 40

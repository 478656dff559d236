"""Money settled outside of the provider's interface: what no loop will settle, a person may."""

import pytest
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied

from orders.payments import drive_refunds, providers
from orders.payments.attempts import _attempt, record_answer, start_payment
from orders.payments.models import PaymentAttempt, Refund
from orders.payments.money import compare_book, money_breaches
from orders.payments.outside import (
    NotSettledOutside,
    settle_attempt_outside,
    settle_refund_outside,
)
from orders.payments.port import Answer, Outcome, ProviderState, ProviderUnavailable
from orders.payments.refunds import refund_order, retry_failed
from orders.settlement.settle import blockers
from tests.fixtures.payments import open_items, refunds
from tests.fixtures.sales import open_sale
from tests.fixtures.sql import execute, one, rows

pytestmark = pytest.mark.django_db
PRICE = 1999
REFUSED = Answer(outcome=Outcome.DEFINITE, error_class="REFUSED")
PROOF = {"reference": "TX-4711", "reason": "the card was closed, sent by bank transfer"}


@pytest.fixture
def sale(committed):
    return open_sale(units=1, price_cents=PRICE)


@pytest.fixture
def order_id(sandbox, sale):
    reservation = sale.reserve("ann")
    sale.deliver(reservation)
    return reservation.order_id


@pytest.fixture
def failed(order_id, operator):
    """A refund that the provider refuses for good."""
    start_payment(order_id=order_id, user_id="ann")
    refund_order(order_id=order_id, user=operator, reason="test", restock=True)
    (sent,) = drive_refunds.claim_due(10)
    drive_refunds.record_answer(sent, REFUSED)
    return sent


def _captured(cents):
    return Answer(
        outcome=Outcome.OK, state=ProviderState.SUCCEEDED, provider_id="p1", amount_cents=cents,
        currency="EUR",
    )  # fmt: skip


@pytest.fixture
def mismatched(sandbox, order_id):
    """An attempt that captured a cent less than it was asked for."""
    sandbox.arm("create_payment", "error_before", reference=order_id)
    start_payment(order_id=order_id, user_id="ann")
    attempt = _attempt(PaymentAttempt.objects.get())
    record_answer(attempt, _captured(PRICE - 1))
    return attempt


def test_a_refused_refund_that_went_by_bank_ends_its_order(failed, order_id, sale, operator):
    settle_refund_outside(refund_id=failed.refund_id, user=operator, **PROOF)

    assert refunds(order_id) == [("OPERATOR", "SUCCEEDED")]
    assert rows("SELECT outside_reference, provider_refund_id FROM orders_refund") == [
        ("TX-4711", None)
    ]
    assert (one("SELECT status FROM orders_order"), sale.available()) == ("REFUNDED", 1)
    assert open_items() == []
    assert money_breaches() == []
    assert compare_book(providers.current()).differences == []
    assert rows("SELECT object_id, change_message FROM django_admin_log") == [
        (failed.refund_id, f"Settled outside (TX-4711): {PROOF['reason']}")
    ]
    assert not [why for why in blockers(sale.activity_id) if "refund" in why]


def test_given_back_by_the_provider_after_all_that_is_recorded(failed, order_id, operator):
    providers.current().refund(
        key=failed.provider_key,
        provider_payment_id=failed.provider_payment_id,
        amount_cents=PRICE,
    )

    with pytest.raises(NotSettledOutside, match="after all"):
        settle_refund_outside(refund_id=failed.refund_id, user=operator, **PROOF)

    assert refunds(order_id) == [("OPERATOR", "SUCCEEDED")]
    assert rows("SELECT outside_reference, provider_refund_id IS NULL FROM orders_refund") == [
        ("", False)
    ]


def test_what_the_loops_still_work_on_is_theirs(failed, order_id, operator):
    retry_failed(refund_id=failed.refund_id, user=operator)
    with pytest.raises(NotSettledOutside, match="still works on it"):
        settle_refund_outside(refund_id=failed.refund_id, user=operator, **PROOF)
    (sent,) = drive_refunds.claim_due(10)
    with pytest.raises(NotSettledOutside, match="still works on it"):
        settle_refund_outside(refund_id=sent.refund_id, user=operator, **PROOF)

    pending = Answer(outcome=Outcome.OK, state=ProviderState.PENDING)
    provider = providers.current()
    drive_refunds.record_answer(sent, REFUSED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(provider), "query_refund", lambda self, *, key: pending)
        with pytest.raises(NotSettledOutside, match="wait for its answer"):
            settle_refund_outside(refund_id=sent.refund_id, user=operator, **PROOF)
    assert refunds(order_id) == [("OPERATOR", "FAILED")]


def test_a_provider_that_is_gone_is_no_obstacle(failed, order_id, operator, settings):
    settings.SECKILL_PAYMENT_PROVIDERS = {}
    with pytest.raises(ProviderUnavailable):
        providers.current()

    settle_refund_outside(refund_id=failed.refund_id, user=operator, **PROOF)

    assert refunds(order_id) == [("OPERATOR", "SUCCEEDED")]


def test_a_wrong_capture_that_went_back_leaves_the_order_to_be_paid_again(
    mismatched, order_id, sale, operator
):
    assert "1 payments are not settled" in blockers(sale.activity_id)

    settle_attempt_outside(attempt_id=mismatched.attempt_id, user=operator, **PROOF)

    assert rows("SELECT status, error_class, outside_reference FROM orders_payment_attempt") == [
        ("FAILED", "AMOUNT_MISMATCH", "TX-4711")
    ]
    assert open_items() == []
    assert "1 payments are not settled" not in blockers(sale.activity_id)
    # An answer that was on its way opens nothing again.
    record_answer(mismatched, _captured(PRICE - 1))
    assert open_items() == []
    with pytest.raises(NotSettledOutside, match="look again"):
        settle_attempt_outside(attempt_id=mismatched.attempt_id, user=operator, **PROOF)
    start_payment(order_id=order_id, user_id="ann")
    assert one("SELECT status FROM orders_order") == "PAID"
    assert money_breaches() == []


def test_a_wrong_refund_that_was_made_good_is_settled(failed, order_id, operator):
    retry_failed(refund_id=failed.refund_id, user=operator)
    (sent,) = drive_refunds.claim_due(10)
    drive_refunds.record_answer(sent, _captured(PRICE - 1))
    assert open_items() == [("REFUND", "AMOUNT_MISMATCH")]

    settle_refund_outside(refund_id=sent.refund_id, user=operator, **PROOF)
    drive_refunds.record_answer(sent, _captured(PRICE - 1))  # it was on its way

    assert (refunds(order_id), open_items()) == ([("OPERATOR", "SUCCEEDED")], [])


@pytest.mark.parametrize(
    "how",
    [{"reference": " "}, {"reason": ""}, {"reference": "x" * 65}],
    ids=["no reference", "no reason", "long"],
)
def test_a_proof_and_a_reason_are_needed(failed, order_id, operator, how):
    with pytest.raises(NotSettledOutside, match="are needed"):
        settle_refund_outside(refund_id=failed.refund_id, user=operator, **PROOF | how)
    assert Refund.objects.get().status == "FAILED"


@pytest.mark.parametrize("settle", [settle_refund_outside, settle_attempt_outside])
def test_only_who_may_refund(committed, settle):
    stranger = get_user_model().objects.create_user("sam")
    row = "refund_id" if settle is settle_refund_outside else "attempt_id"
    with pytest.raises(PermissionDenied):
        settle(**{row: "any"}, user=stranger, **PROOF)


def test_an_open_attempt_without_a_difference_is_the_loops(sandbox, order_id, operator):
    sandbox.arm("create_payment", "error_before", reference=order_id)
    start_payment(order_id=order_id, user_id="ann")
    attempt_id = one("SELECT attempt_id FROM orders_payment_attempt")
    execute("UPDATE orders_payment_attempt SET tries = 30")
    with pytest.raises(NotSettledOutside):
        settle_attempt_outside(attempt_id=attempt_id, user=operator, **PROOF)

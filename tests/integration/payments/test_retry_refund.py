"""A failed refund is tried again under a new key: never while its old key may have paid as well."""

import pytest

from orders.errors import OrderStateConflict
from orders.payments import drive_refunds, providers
from orders.payments.attempts import start_payment
from orders.payments.port import Answer, Outcome, ProviderState
from orders.payments.refunds import RefundRefused, refund_order, retry_failed
from tests.fixtures.payments import assert_money_exact, open_items, refunds
from tests.fixtures.sales import open_sale
from tests.fixtures.sql import one

pytestmark = pytest.mark.django_db
PRICE = 1999
REFUSED = Answer(outcome=Outcome.DEFINITE, error_class="REFUSED")


@pytest.fixture
def failed(sandbox, operator):
    """A refund that was sent and, for all we know, refused."""
    sale = open_sale(units=1, price_cents=PRICE)
    reservation = sale.reserve("ann")
    sale.deliver(reservation)
    start_payment(order_id=reservation.order_id, user_id="ann")
    refund_order(order_id=reservation.order_id, user=operator, reason="test", restock=True)
    (sent,) = drive_refunds.claim_due(10)
    drive_refunds.record_answer(sent, REFUSED)
    assert refunds(sent.order_id) == [("OPERATOR", "FAILED")]
    return sent


def _send(refund):
    return providers.current().refund(
        key=refund.provider_key,
        provider_payment_id=refund.provider_payment_id,
        amount_cents=refund.amount_cents,
    )


def test_given_back_after_all_it_is_settled_and_nothing_is_sent(sandbox, failed, operator):
    _send(failed)  # the provider took it, whatever it told us

    with pytest.raises(RefundRefused, match="after all"):
        retry_failed(refund_id=failed.refund_id, user=operator)

    assert refunds(failed.order_id) == [("OPERATOR", "SUCCEEDED")]
    assert len(sandbox.entries(failed.order_id, "refund")) == 1
    assert open_items() == []
    assert_money_exact(sandbox)


@pytest.mark.parametrize(
    ("providers_now", "why"),
    [
        ({"sandbox": "orders.payments.sandbox.configured"}, "does not say yet"),
        ({}, "not configured"),
    ],
    ids=["no answer", "removed"],
)
def test_without_an_answer_the_key_stays(failed, operator, settings, providers_now, why):
    settings.SECKILL_PAYMENT_PROVIDERS = providers_now
    settings.PAYMENT_PROVIDER_URL = "http://127.0.0.1:9"  # nobody listens

    with pytest.raises(RefundRefused, match=why):
        retry_failed(refund_id=failed.refund_id, user=operator)

    assert refunds(failed.order_id) == [("OPERATOR", "FAILED")]
    assert one("SELECT provider_key FROM orders_refund") == failed.provider_key
    assert open_items() == [("REFUND", "REFUND_FAILED")]


def test_an_answer_to_the_old_key_is_a_persons(failed, operator):
    """The call was on its way while the operator tried again."""
    retry_failed(refund_id=failed.refund_id, user=operator)
    drive_refunds.record_answer(failed, REFUSED)  # nothing new
    assert open_items() == []

    drive_refunds.record_answer(
        failed,
        Answer(
            outcome=Outcome.OK,
            state=ProviderState.SUCCEEDED,
            provider_id="ref_old",
            amount_cents=PRICE,
            currency="EUR",
        ),
    )

    assert refunds(failed.order_id) == [("OPERATOR", "DUE")]
    assert open_items() == [("REFUND", "OLD_KEY_ANSWERED")]


def test_only_a_failed_one(failed, operator):
    retry_failed(refund_id=failed.refund_id, user=operator)
    with pytest.raises(OrderStateConflict, match="DUE"):
        retry_failed(refund_id=failed.refund_id, user=operator)

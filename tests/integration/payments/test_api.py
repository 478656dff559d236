"""Paying over the REST API, and the address for webhooks, with the real provider process."""

import hashlib
import hmac
import json
import time

import pytest
from rest_framework.test import APIClient

from seckill.admission.tokens import issue
from tests.fixtures.payments import SECRET, assert_money_exact, refunds, settle_all
from tests.fixtures.sales import open_sale
from tests.fixtures.sql import one

pytestmark = pytest.mark.django_db
PRICE = 1999
WEBHOOKS = "/api/v1/payments/webhooks/sandbox"


def _client(user_id):
    made = APIClient()
    token = issue(user_id, use="access", lifetime_s=60)
    made.credentials(HTTP_AUTHORIZATION=f"Bearer {token}")
    return made


@pytest.fixture
def order_id(sandbox):
    sale = open_sale(units=2, price_cents=PRICE)
    reservation = sale.reserve("ann")
    sale.deliver(reservation)
    return reservation.order_id


@pytest.fixture
def address(order_id):
    return f"/api/v1/orders/{order_id}/payments"


def _webhook(attempt_id, *, secret=SECRET, event="pev_1"):
    data = {
        "id": "pay_s1",
        "status": "SUCCEEDED",
        "amount_cents": PRICE,
        "currency": "EUR",
        "idempotency_key": attempt_id,
    }
    body = json.dumps({"id": event, "type": "payment.succeeded", "data": data})
    timestamp = str(int(time.time()))
    mac = hmac.new(secret.encode(), f"{timestamp}.{body}".encode(), hashlib.sha256).hexdigest()
    return APIClient().generic(
        "POST",
        WEBHOOKS,
        body,
        content_type="application/json",
        HTTP_X_SANDBOX_TIMESTAMP=timestamp,
        HTTP_X_SANDBOX_SIGNATURE=f"v1={mac}",
    )


def test_pay_and_look(sandbox, order_id, address):
    first = _client("ann").post(address)
    again = _client("ann").post(address)
    seen = _client("ann").get(address)

    assert (first.status_code, again.status_code, seen.status_code) == (200, 200, 200)
    assert first.json() == again.json() == seen.json()
    assert first.json()["status"] == "PAID"
    ((attempt,),) = [first.json()["attempts"]]
    assert (attempt["attempt_no"], attempt["status"], attempt["refund_status"]) == (
        1,
        "SUCCEEDED",
        None,
    )
    assert len(sandbox.entries(order_id)) == 1
    assert_money_exact(sandbox)


def test_what_is_unclear_is_202_and_settles_by_itself(sandbox, order_id, address):
    sandbox.arm("create_payment", "timeout_after", reference=order_id)

    response = _client("ann").post(address)
    assert (response.status_code, response.json()["status"]) == (202, "PAYING")
    assert response.json()["attempts"][0]["status"] == "SUBMIT_UNKNOWN"
    assert _client("ann").post(address).status_code == 202  # charges nothing more
    settle_all()

    assert _client("ann").get(address).json()["status"] == "PAID"
    assert len(sandbox.entries(order_id)) == 1


def test_a_refusal_is_told_and_may_be_tried_again(sandbox, order_id, address):
    sandbox.arm("create_payment", "decline", reference=order_id)

    refused = _client("ann").post(address)
    paid = _client("ann").post(address)

    assert (refused.status_code, refused.json()["status"]) == (200, "PAYING")
    assert refused.json()["attempts"][-1]["error_class"] == "DECLINED"
    assert paid.json()["status"] == "PAID"


def test_only_ones_own_and_only_unpaid(sandbox, order_id, address, settings):
    assert _client("bob").post(address).status_code == 404
    assert _client("bob").get(address).status_code == 404
    assert APIClient().post(address).status_code == 401
    _client("ann").post(f"/api/v1/orders/{order_id}/cancel")
    conflict = _client("ann").post(address)
    assert (conflict.status_code, conflict.json()["code"]) == (409, "ORDER_STATE_CONFLICT")
    settings.PAYMENT_PROVIDER_URL = ""
    assert _client("ann").post(address).status_code == 501
    assert _client("bob").post(address).status_code == 404
    assert sandbox.entries(order_id) == []


def test_webhook_once_twice_and_forged(sandbox, order_id, address):
    sandbox.arm("create_payment", "error_before", reference=order_id)
    _client("ann").post(address)
    attempt_id = one("SELECT attempt_id FROM orders_payment_attempt")

    forged = _webhook(attempt_id, secret="guess")
    assert (forged.status_code, forged.json()["reason"]) == (400, "BAD_SIGNATURE")
    assert one("SELECT count(*) FROM orders_webhook") == 0
    first, second = _webhook(attempt_id), _webhook(attempt_id)

    assert (first.status_code, first.json()) == (200, {"result": "APPLIED"})
    assert (second.status_code, second.json()) == (200, {"result": "DUPLICATE"})
    assert _client("ann").get(address).json()["status"] == "PAID"
    assert refunds(order_id) == []


def test_a_webhook_that_is_too_large_or_of_nobody_is_refused(sandbox):
    large = APIClient().generic("POST", WEBHOOKS, "x" * 70_000, content_type="application/json")
    nobody = APIClient().generic("POST", WEBHOOKS.replace("sandbox", "other"), "{}")

    assert (large.status_code, nobody.status_code) == (413, 400)
    assert nobody.json()["reason"] == "NO_SUCH_PROVIDER"

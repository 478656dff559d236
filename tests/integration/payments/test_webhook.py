"""Webhooks, delivered by the real provider process and by attackers: one effect, or a person's."""

import hashlib
import hmac
import json
import time

import pytest

from orders.cancel_order import cancel_by_user
from orders.payments import drive_refunds
from orders.payments.attempts import start_payment
from orders.payments.port import WebhookRefused
from orders.payments.refunds import begin_refund
from orders.payments.states import RefundReason
from orders.payments.webhooks import Receipt, receive_webhook
from orders.scan.webhooks import WebhooksJob
from tests.fixtures.payments import (
    SECRET,
    assert_money_exact,
    attempts,
    make_due,
    open_items,
    poll,
    refunds,
    run_jobs,
    settle_all,
)
from tests.fixtures.sales import at_once, open_sale
from tests.fixtures.sql import execute, one, rows

pytestmark = pytest.mark.django_db
PRICE = 1999


@pytest.fixture
def order_id(sandbox):
    sale = open_sale(units=2, price_cents=PRICE)
    reservation = sale.reserve("ann")
    sale.deliver(reservation)
    return reservation.order_id


@pytest.fixture
def unclear(sandbox, order_id):
    """The id of an attempt that was never answered and never charged."""
    sandbox.arm("create_payment", "error_before", reference=order_id)
    start_payment(order_id=order_id, user_id="ann")
    return one("SELECT attempt_id FROM orders_payment_attempt")


def _status(order_id):
    return one("SELECT status FROM orders_order WHERE order_id = %s", order_id)


def _webhooks():
    return rows("SELECT kind, status, reason FROM orders_webhook ORDER BY id")


def _body(key, *, kind="payment.succeeded", event="pev_1", amount=PRICE, entry="pay_s1"):
    status = kind.split(".")[1].upper()
    data = {
        "id": entry,
        "status": status,
        "amount_cents": amount,
        "currency": "EUR",
        "idempotency_key": key,
        "reference": "o",
    }
    return json.dumps({"id": event, "type": kind, "data": data}).encode()


def _headers(body, *, secret=SECRET, at=None):
    timestamp = str(int(time.time()) if at is None else at)
    mac = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256)
    return {"x-sandbox-timestamp": timestamp, "x-sandbox-signature": f"v1={mac.hexdigest()}"}


def _receive(body, **how):
    return receive_webhook(provider="sandbox", headers=_headers(body, **how), body=body)


def test_the_providers_webhook_pays_a_pending_order(sandbox, order_id, webhook_server):
    sandbox.arm("create_payment", "pending", reference=order_id, delay_ms=50)

    start_payment(order_id=order_id, user_id="ann")
    poll(lambda: _status(order_id) == "PAID", what="the webhook pays the order")

    assert attempts(order_id) == [("SUCCEEDED", "")]
    assert _webhooks() == [("PAYMENT_SUCCEEDED", "APPLIED", "")]
    (raw,) = rows("SELECT raw_body, event_id FROM orders_webhook")
    assert json.loads(bytes(raw[0]))["id"] == raw[1]
    assert_money_exact(sandbox)


def test_a_webhook_delivered_twice_has_one_effect(sandbox, order_id, webhook_server):
    sandbox.arm("create_payment", "timeout_after", reference=order_id)
    sandbox.arm("webhook", "duplicate", reference=order_id)

    start_payment(order_id=order_id, user_id="ann")
    poll(lambda: len(webhook_server.answers) == 2, what="both deliveries")

    assert sorted(webhook_server.answers) == ["APPLIED", "DUPLICATE"]
    assert (_status(order_id), refunds(order_id)) == ("PAID", [])
    assert one("SELECT count(*) FROM messaging_outbox WHERE tag = 'ORDER_PAID'") == 1
    settle_all()
    assert_money_exact(sandbox)


def test_the_same_event_at_once(order_id, unclear):
    body = _body(unclear)

    results = at_once([lambda: _receive(body)] * 5)

    assert sorted(results) == [Receipt.APPLIED] + [Receipt.DUPLICATE] * 4
    assert one("SELECT count(*) FROM messaging_outbox WHERE tag = 'ORDER_PAID'") == 1


def test_a_late_webhook_finds_everything_done(sandbox, order_id, webhook_server):
    sandbox.arm("webhook", "late", reference=order_id, delay_ms=300)

    start_payment(order_id=order_id, user_id="ann")
    assert _status(order_id) == "PAID"
    poll(lambda: webhook_server.answers, what="the late webhook")

    assert webhook_server.answers == ["IGNORED"]
    assert _webhooks() == [("PAYMENT_SUCCEEDED", "IGNORED", "KNOWN")]
    assert_money_exact(sandbox)


def test_a_webhook_after_the_cancel_owes_a_refund(sandbox, order_id, webhook_server):
    sandbox.arm("create_payment", "late_accept", reference=order_id, delay_ms=600)
    start_payment(order_id=order_id, user_id="ann")
    cancel_by_user(order_id=order_id, user_id="ann")

    poll(lambda: "APPLIED" in webhook_server.answers, what="the webhook of the late charge")
    assert refunds(order_id)[0][0] == "LATE_PAYMENT"
    settle_all()

    assert (_status(order_id), refunds(order_id)) == ("CANCELED", [("LATE_PAYMENT", "SUCCEEDED")])
    assert_money_exact(sandbox)


def test_webhooks_out_of_order(sandbox, order_id, webhook_server):
    """R154: the refund's event before the payment's; the state is right all the same."""
    sandbox.arm("create_payment", "timeout_after", reference=order_id)
    sandbox.arm("webhook", "hold", reference=order_id)
    start_payment(order_id=order_id, user_id="ann")
    cancel_by_user(order_id=order_id, user_id="ann")
    settle_all()  # the query finds the charge; the refund is sent; its webhook comes first
    poll(lambda: len(webhook_server.answers) == 2, what="both webhooks")
    poll(lambda: sandbox.undelivered() == 0, what="nothing left to deliver")

    assert [kind for kind, _, _ in _webhooks()] == ["REFUND_SUCCEEDED", "PAYMENT_SUCCEEDED"]
    assert (_status(order_id), refunds(order_id)) == ("CANCELED", [("LATE_PAYMENT", "SUCCEEDED")])
    assert_money_exact(sandbox)


@pytest.mark.parametrize(
    ("trick", "reason"), [("forge", "BAD_SIGNATURE"), ("stale", "OUTSIDE_TIME_WINDOW")]
)
def test_forged_and_stale_deliveries_are_refused(sandbox, order_id, webhook_server, trick, reason):
    sandbox.arm("create_payment", "timeout_after", reference=order_id)
    sandbox.arm("webhook", trick, reference=order_id)

    start_payment(order_id=order_id, user_id="ann")
    poll(lambda: len(webhook_server.answers) == 2, what="the refused one and its retry")

    assert webhook_server.answers == [reason, "APPLIED"]
    assert len(_webhooks()) == 1


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        (lambda b: _headers(b, secret="x"), "BAD_SIGNATURE"),
        (lambda b: _headers(b + b" "), "BAD_SIGNATURE"),
        (
            lambda b: _headers(b) | {"x-sandbox-timestamp": str(int(time.time()) + 1)},
            "BAD_SIGNATURE",
        ),
        (lambda b: _headers(b, at=int(time.time()) - 301), "OUTSIDE_TIME_WINDOW"),
        (lambda b: _headers(b, at=int(time.time()) + 310), "OUTSIDE_TIME_WINDOW"),
        (lambda b: _headers(b, at="¹²"), "BAD_TIMESTAMP"),
        (lambda b: _headers(b, at=""), "BAD_TIMESTAMP"),
        (lambda b: {}, "BAD_SIGNATURE"),
        (lambda b: {"x-sandbox-signature": "v1=é"}, "BAD_SIGNATURE"),
    ],
)
def test_forged_webhooks_change_nothing(order_id, unclear, headers, reason):
    body = _body(unclear)

    with pytest.raises(WebhookRefused) as refused:
        receive_webhook(provider="sandbox", headers=headers(body), body=body)

    assert refused.value.reason == reason
    assert (_webhooks(), attempts(order_id)) == ([], [("SUBMIT_UNKNOWN", "HTTP_500")])


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[1]", b'{"id": "e", "type": "t", "data": {}}', b"\xff"]
)
def test_unreadable_bodies_are_refused(order_id, body):
    with pytest.raises(WebhookRefused, match="UNREADABLE"):
        _receive(body)
    assert _webhooks() == []


def test_an_unknown_provider_is_refused(order_id):
    with pytest.raises(WebhookRefused, match="NO_SUCH_PROVIDER"):
        receive_webhook(provider="other", headers={}, body=b"{}")


def test_without_a_secret_nothing_is_believed(order_id, unclear, settings):
    settings.SECKILL_WEBHOOK_SECRET = ""
    body = _body(unclear)

    with pytest.raises(WebhookRefused, match="NO_SECRET"):
        receive_webhook(provider="sandbox", headers=_headers(body, secret=""), body=body)


def test_a_recorded_webhook_replayed_changes_nothing(sandbox, order_id, unclear):
    """Within the window the event id, after it the timestamp stops an attacker with a recording."""
    body = _body(unclear)
    headers = _headers(body)
    assert receive_webhook(provider="sandbox", headers=headers, body=body) is Receipt.APPLIED

    again = receive_webhook(provider="sandbox", headers=headers, body=body)
    old = _headers(body, at=int(time.time()) - 400)
    with pytest.raises(WebhookRefused):
        receive_webhook(provider="sandbox", headers=old, body=body)

    assert again is Receipt.DUPLICATE
    assert (len(_webhooks()), refunds(order_id)) == (1, [])


def test_a_webhook_before_its_payment_is_parked_and_applied_later(sandbox, order_id):
    assert _receive(_body("pay_notyet")) is Receipt.PARKED
    assert WebhooksJob().run_once() == 0  # not due: 10 s
    make_due()
    assert WebhooksJob().run_once() == 0
    assert _webhooks() == [("PAYMENT_SUCCEEDED", "PARKED", "NO_PAYMENT_YET")]

    sandbox.arm("create_payment", "error_before", reference=order_id)
    start_payment(order_id=order_id, user_id="ann")
    execute("UPDATE orders_payment_attempt SET attempt_id = 'pay_notyet'")
    make_due()
    assert WebhooksJob().run_once() == 1

    assert (_status(order_id), attempts(order_id)) == ("PAID", [("SUCCEEDED", "")])
    assert _webhooks() == [("PAYMENT_SUCCEEDED", "APPLIED", "")]


def test_a_webhook_whose_payment_never_comes_is_ticketed_after_24_hours(order_id):
    _receive(_body("pay_never"))
    execute("UPDATE orders_webhook SET received_at = received_at - interval '23 h 59 min'")
    make_due()
    assert WebhooksJob().run_once() == 0
    assert open_items() == []
    execute("UPDATE orders_webhook SET received_at = received_at - interval '1 min'")
    make_due()

    assert WebhooksJob().run_once() == 1

    assert _webhooks() == [("PAYMENT_SUCCEEDED", "TICKETED", "NO_PAYMENT_YET")]
    assert open_items() == [("PAYMENT_WEBHOOK", "NO_PAYMENT_YET")]


def test_another_amount_is_ticketed_not_booked(order_id, unclear):
    assert _receive(_body(unclear, amount=PRICE - 1)) is Receipt.TICKETED

    assert (_status(order_id), attempts(order_id)) == (
        "PAYING",
        [("SUBMIT_UNKNOWN", "HTTP_500")],
    )
    assert open_items() == [("PAYMENT_WEBHOOK", "AMOUNT_MISMATCH")]


def test_failed_after_succeeded_and_succeeded_after_failed(order_id, unclear):
    assert _receive(_body(unclear, kind="payment.failed", event="e1")) is Receipt.APPLIED
    assert attempts(order_id) == [("FAILED", "DECLINED")]
    assert _receive(_body(unclear, event="e2")) is Receipt.APPLIED
    assert _receive(_body(unclear, kind="payment.failed", event="e3")) is Receipt.TICKETED

    assert (_status(order_id), attempts(order_id)) == ("PAID", [("SUCCEEDED", "")])
    assert open_items() == [("PAYMENT_WEBHOOK", "CAPTURE_TAKEN_BACK")]


def test_a_failure_that_is_known_is_ignored(order_id, unclear):
    assert _receive(_body(unclear, kind="payment.failed", event="e1")) is Receipt.APPLIED
    assert _receive(_body(unclear, kind="payment.failed", event="e2")) is Receipt.IGNORED
    assert open_items() == []


@pytest.mark.parametrize(
    ("kind", "entry", "verdict"),
    [
        ("refund.succeeded", "ref_1", ("IGNORED", "KNOWN")),
        ("refund.succeeded", "ref_other", ("TICKETED", "SECOND_REFUND")),
        ("refund.failed", "ref_1", ("TICKETED", "REFUND_CAME_BACK")),
    ],
)
def test_what_a_query_settles_meanwhile_is_compared(
    sandbox, order_id, monkeypatch, kind, entry, verdict
):
    """The query's answer is committed after the webhook has looked at the refund."""
    start_payment(order_id=order_id, user_id="ann")
    key = begin_refund(
        order_id=order_id, reason=RefundReason.OPERATOR, restock=True, requested_by="o", note="n"
    )
    drive_refunds.claim_due(10)

    def too_late(real):
        def settle(**how):
            execute(
                "UPDATE orders_refund SET status = 'SUCCEEDED', provider_refund_id = 'ref_1',"
                " settled_at = now(), next_try_at = NULL"
            )
            return real(**how)

        return settle

    for name in ("succeed", "fail"):
        monkeypatch.setattr(drive_refunds, name, too_late(getattr(drive_refunds, name)))

    _receive(_body(key, kind=kind, entry=entry))

    assert [(row[1], row[2]) for row in _webhooks()] == [verdict]


def test_kinds_that_we_do_not_use_are_kept_and_ignored(order_id):
    assert _receive(_body("k", kind="payout.paid").replace(b"PAID", b"PENDING")) is Receipt.IGNORED
    assert _webhooks() == [("OTHER", "IGNORED", "OTHER_KIND")]


def test_a_webhook_that_cannot_be_applied_does_not_hold_up_others(order_id, unclear):
    _receive(_body("pay_later", event="e1"))
    _receive(_body("pay_later2", event="e2"))
    execute("UPDATE orders_webhook SET raw_body = 'rubbish' WHERE event_id = 'e1'")
    execute("UPDATE orders_payment_attempt SET attempt_id = 'pay_later2'")
    make_due()

    assert WebhooksJob().run_once() == 1

    assert [status for _, status, _ in _webhooks()] == ["PARKED", "APPLIED"]
    assert run_jobs() >= 0
    assert _status(order_id) == "PAID"


def test_a_second_capture_under_the_same_key_is_a_persons(order_id, unclear):
    assert _receive(_body(unclear)) is Receipt.APPLIED
    assert _receive(_body(unclear, event="pev_2")) is not Receipt.APPLIED  # the same: known

    _receive(_body(unclear, event="pev_3", entry="pay_s2"))

    assert [(row[1], row[2]) for row in _webhooks()] == [
        ("APPLIED", ""),
        ("IGNORED", "KNOWN"),
        ("TICKETED", "SECOND_CAPTURE"),
    ]
    assert open_items() == [("PAYMENT_WEBHOOK", "SECOND_CAPTURE")]


def test_a_refund_that_the_bank_sent_back_and_a_second_one_are_a_persons(sandbox, order_id):
    start_payment(order_id=order_id, user_id="ann")
    begin_refund(
        order_id=order_id, reason=RefundReason.OPERATOR, restock=True, requested_by="o", note="n"
    )
    run_jobs()
    ((key, entry),) = rows("SELECT provider_key, provider_refund_id FROM orders_refund")
    _receive(_body(key, kind="refund.succeeded", event="pev_1", entry=entry))

    _receive(_body(key, kind="refund.failed", event="pev_2", entry=entry))
    _receive(_body(key, kind="refund.succeeded", event="pev_3", entry="ref_other"))

    assert [(row[1], row[2]) for row in _webhooks()] == [
        ("IGNORED", "KNOWN"),
        ("TICKETED", "REFUND_CAME_BACK"),
        ("TICKETED", "SECOND_REFUND"),
    ]

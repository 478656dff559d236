"""A real process killed with SIGKILL at each step of payment and refund: every cent accounted for.

The process pays at the real provider; what it left behind is settled by the scanner's jobs, which
know nothing of what happened.
"""

import hashlib
import hmac
import json
import os
import signal
import subprocess
import sys
import time
from urllib.parse import urlsplit, urlunsplit

import pytest
from django.conf import settings as django_settings
from django.db import connection

from orders.cancel_order import cancel_by_user
from orders.payments.attempts import start_payment
from orders.payments.refunds import begin_refund
from orders.payments.states import RefundReason
from orders.payments.webhooks import Receipt, receive_webhook
from tests.fixtures.payments import (
    KEY,
    ROOT,
    SECRET,
    assert_money_exact,
    attempts,
    make_due,
    pass_window,
    refunds,
    settle_all,
)
from tests.fixtures.sales import open_sale
from tests.fixtures.sql import one, rows

pytestmark = [pytest.mark.process, pytest.mark.django_db]
PRICE = 1999


@pytest.fixture
def _django_db_helper(committed):
    """Real commits: the other process must see them."""


@pytest.fixture
def order_id(sandbox):
    sale = open_sale(units=1, price_cents=PRICE)
    reservation = sale.reserve("ann")
    sale.deliver(reservation)
    return reservation.order_id


@pytest.fixture
def step(sandbox, tmp_path):
    """Run one step in a process that is killed at a fault point; it must die of the signal."""

    def run(*args, kill_at, nth=1):
        database = urlsplit(os.environ["DATABASE_URL"])._replace(
            path=f"/{connection.settings_dict['NAME']}"
        )
        env = {
            **os.environ,
            "DATABASE_URL": urlunsplit(database),
            "REDIS_URL": django_settings.REDIS_URL,
            "PAYMENT_PROVIDER_URL": sandbox.url,
            "PAYMENT_PROVIDER_KEY": KEY,
            "SECKILL_WEBHOOK_SECRET": SECRET,
            "SECKILL_FAULTPOINTS": f"{kill_at}=kill@{nth}",
            "SECKILL_FAULTPOINTS_ALLOWED": "1",
            "SECKILL_FAULTPOINT_DIR": str(tmp_path),
        }
        done = subprocess.run(
            [sys.executable, "-m", "tests.fixtures.pay_step", *args],
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert (tmp_path / kill_at).exists()

    return run


def _status(order_id):
    return one("SELECT status FROM orders_order WHERE order_id = %s", order_id)


@pytest.mark.parametrize(
    ("kill_at", "charged"),
    [("payment.after_record", 0), ("payment.after_call", 1), ("payment.before_commit", 1)],
)
@pytest.mark.parametrize("cancel", [False, True])
def test_killed_while_paying(sandbox, order_id, step, kill_at, charged, cancel):
    step("pay", order_id, "ann", kill_at=kill_at)
    assert attempts(order_id) == [("CREATED", "")]  # the row is there before anything was sent
    assert len(sandbox.entries(order_id)) == charged
    if cancel:
        cancel_by_user(order_id=order_id, user_id="ann")
        if not charged:  # nothing may be sent any more: only the window's end settles it
            pass_window(order_id)
            settle_all()
            assert (_status(order_id), attempts(order_id)) == (
                "CANCELED",
                [("FAILED", "NOT_FOUND")],
            )
            assert sandbox.entries(order_id) == []
            assert assert_money_exact(sandbox).money_in == 0
            return

    settle_all()

    assert len(sandbox.entries(order_id)) == 1
    assert attempts(order_id) == [("SUCCEEDED", "")]
    assert _status(order_id) == ("CANCELED" if cancel else "PAID")
    assert refunds(order_id) == ([("LATE_PAYMENT", "SUCCEEDED")] if cancel else [])
    assert sandbox.net_cents(order_id) == (0 if cancel else PRICE)
    assert_money_exact(sandbox)


@pytest.mark.parametrize("kill_at", ["payment.after_record", "payment.after_call"])
def test_the_scanner_killed_while_sending_again(sandbox, order_id, step, kill_at):
    sandbox.arm("create_payment", "error_before", reference=order_id)
    start_payment(order_id=order_id, user_id="ann")
    make_due()
    step("payments", kill_at=kill_at)

    settle_all()

    assert (_status(order_id), len(sandbox.entries(order_id))) == ("PAID", 1)
    assert_money_exact(sandbox)


@pytest.mark.parametrize(
    ("kill_at", "sent"),
    [("refund.after_record", 0), ("refund.after_call", 1), ("refund.before_commit", 1)],
)
def test_killed_while_refunding(sandbox, order_id, step, kill_at, sent):
    start_payment(order_id=order_id, user_id="ann")
    begin_refund(
        order_id=order_id, reason=RefundReason.OPERATOR, restock=True, requested_by="o", note="n"
    )
    step("refunds", kill_at=kill_at)
    assert refunds(order_id) == [("OPERATOR", "SUBMITTED")]
    assert len(sandbox.entries(order_id, "refund")) == sent
    assert assert_money_exact(sandbox, at_rest=False).refund_due == PRICE

    settle_all()

    assert (_status(order_id), refunds(order_id)) == ("REFUNDED", [("OPERATOR", "SUCCEEDED")])
    assert len(sandbox.entries(order_id, "refund")) == 1
    assert rows("SELECT available, withheld FROM inventory_stock") == [(1, 0)]
    assert assert_money_exact(sandbox).refunded == PRICE


def test_killed_while_applying_a_webhook(sandbox, order_id, step, tmp_path):
    """Event and effect are one transaction: the provider's retry does what the first could not."""
    sandbox.arm("create_payment", "pending", reference=order_id, delay_ms=1)
    start_payment(order_id=order_id, user_id="ann")
    attempt_id = one("SELECT attempt_id FROM orders_payment_attempt")
    (entry,) = sandbox.entries(order_id)
    body = json.dumps(
        {"id": "pev_1", "type": "payment.succeeded", "data": entry | {"status": "SUCCEEDED"}}
    )
    timestamp = str(int(time.time()))
    mac = hmac.new(SECRET.encode(), f"{timestamp}.{body}".encode(), hashlib.sha256).hexdigest()
    headers = {"x-sandbox-timestamp": timestamp, "x-sandbox-signature": f"v1={mac}"}
    sent = tmp_path / "webhook.json"
    sent.write_text(json.dumps({"headers": headers, "body": body}))

    step("webhook", str(sent), kill_at="webhook.before_commit")
    assert one("SELECT count(*) FROM orders_webhook") == 0
    assert attempts(order_id) == [("SUBMITTED", "")]

    answer = receive_webhook(provider="sandbox", headers=headers, body=body.encode())

    assert answer is Receipt.APPLIED
    assert (_status(order_id), one("SELECT payment_id FROM orders_order")) == ("PAID", attempt_id)
    assert_money_exact(sandbox)

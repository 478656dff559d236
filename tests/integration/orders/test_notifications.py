"""A buyer gets a mail once, or a person decides: never twice by itself."""

import smtplib

import pytest
from django.contrib.auth.models import Permission, User
from django.core import mail
from django.core.exceptions import PermissionDenied
from django.core.mail.backends.locmem import EmailBackend
from django.db import connection

from messaging.topology import CG_NOTIFY
from orders import notifications
from orders.effects.registry import effect_handlers
from orders.notifications import SendReport
from tests.fixtures.effects import event_of, life_of
from tests.fixtures.sales import at_once
from tests.fixtures.sql import execute, rows

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _mail(settings):
    settings.SECKILL_MAIL = True
    settings.SECKILL_MAIL_DOMAIN = "buyers.example"


def _queue(user="ann", place=1):
    message = life_of(user)[place]
    effect_handlers()[CG_NOTIFY].handle([message])
    return event_of(message)


def _statuses():
    return [status for (status,) in rows("SELECT status FROM orders_notification ORDER BY id")]


class OutsideTransactions(EmailBackend):
    def send_messages(self, messages):
        assert not connection.in_atomic_block
        assert _statuses() == ["SENDING"]  # committed: another connection would see it, too
        return super().send_messages(messages)


def test_a_mail_is_sent_once_outside_any_transaction(settings, monkeypatch):
    event = _queue()
    monkeypatch.setattr(mail, "get_connection", lambda **_: OutsideTransactions())

    assert notifications.send_due() == SendReport(sent=1)
    assert notifications.send_due() == SendReport()

    (sent,) = mail.outbox
    assert sent.to == ["ann@buyers.example"]
    assert event.order_id in sent.subject
    assert "19.99 EUR" in sent.body
    assert _statuses() == ["SENT"]


def test_a_refund_has_a_mail_of_its_own():
    _queue()
    _queue(place=2)
    assert notifications.send_due() == SendReport(sent=2)
    assert [m.subject.split(":")[0] for m in mail.outbox] == [
        "Your order is paid",
        "Your order is refunded",
    ]


@pytest.mark.parametrize("point", ["notify.sending", "notify.sent"])
def test_a_crash_while_sending_is_unknown_listed_and_never_sent_again(monkeypatch, point):
    _queue()

    def crash(name):
        if name == point:
            raise KeyboardInterrupt

    monkeypatch.setattr(notifications.faultpoint, "hit", crash)
    with pytest.raises(KeyboardInterrupt):
        notifications.send_due()
    monkeypatch.undo()
    sent_before = len(mail.outbox)

    assert notifications.send_due() == SendReport()  # its sender may still be at work
    assert _statuses() == ["SENDING"]
    execute("UPDATE orders_notification SET sending_at = sending_at - interval '2 minutes'")
    assert notifications.send_due() == SendReport(unknown=1)
    assert notifications.send_due() == SendReport()

    assert _statuses() == ["UNKNOWN"]
    assert len(mail.outbox) == sent_before == (1 if point == "notify.sent" else 0)


@pytest.mark.parametrize(
    ("error", "status", "report"),
    [
        (TimeoutError(), "UNKNOWN", SendReport(unknown=1)),
        (smtplib.SMTPServerDisconnected("gone"), "UNKNOWN", SendReport(unknown=1)),
        (ConnectionRefusedError(), "PENDING", SendReport(later=1)),
        (smtplib.SMTPRecipientsRefused({}), "FAILED", SendReport(failed=1)),
    ],
)
def test_what_a_failed_send_proves(monkeypatch, error, status, report):
    _queue()

    class Broken(EmailBackend):
        def send_messages(self, messages):
            raise error

    monkeypatch.setattr(mail, "get_connection", lambda **_: Broken())

    assert notifications.send_due() == report
    assert notifications.send_due() == SendReport()  # a PENDING one waits for its back-off
    assert _statuses() == [status]


def test_a_slow_sender_that_comes_back_tells_the_truth(monkeypatch):
    _queue()

    def slow(name):
        if name == "notify.sent":
            execute("UPDATE orders_notification SET status = 'UNKNOWN'")

    monkeypatch.setattr(notifications.faultpoint, "hit", slow)
    assert notifications.send_due() == SendReport(sent=1)
    assert _statuses() == ["SENT"]


def test_two_senders_at_once_send_each_mail_once():
    for n in range(10):
        _queue(f"u{n}")
    at_once([notifications.send_due] * 3)
    assert sorted(m.to[0] for m in mail.outbox) == [f"u{n}@buyers.example" for n in range(10)]


def test_without_mail_rows_wait_and_without_an_address_they_are_skipped(settings):
    _queue()
    settings.SECKILL_MAIL = False
    assert notifications.send_due() == SendReport()
    settings.SECKILL_MAIL, settings.SECKILL_MAIL_DOMAIN = True, ""
    _queue("bob@mail.example")

    assert notifications.send_due() == SendReport(sent=1, skipped=1)
    assert [m.to for m in mail.outbox] == [["bob@mail.example"]]


def test_only_a_person_with_the_permission_sends_an_unknown_one_again():
    _queue()
    execute("UPDATE orders_notification SET status = 'UNKNOWN', sending_at = now()")
    ((number,),) = rows("SELECT id FROM orders_notification")
    user = User.objects.create_user("op")
    with pytest.raises(PermissionDenied):
        notifications.send_again(notification_id=number, user=user)
    user.user_permissions.add(Permission.objects.get(codename="resend_notification"))
    user = User.objects.get(pk=user.pk)

    assert notifications.send_again(notification_id=number, user=user)
    assert notifications.send_due() == SendReport(sent=1)
    assert not notifications.send_again(notification_id=number, user=user)  # it is SENT

"""A buyer gets a mail once, or a person decides: never twice by itself."""

import errno
import smtplib
import socket
from typing import ClassVar

import pytest
from django.contrib.auth.models import Permission, User
from django.core import mail
from django.core.exceptions import PermissionDenied
from django.core.mail.backends import smtp
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
    monkeypatch.setattr(notifications, "get_connection", OutsideTransactions)

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
        (smtplib.SMTPRecipientsRefused({"a": (550, b"")}), "FAILED", SendReport(failed=1)),
        (smtplib.SMTPRecipientsRefused({"a": (451, b"")}), "PENDING", SendReport(later=1)),
        (
            smtplib.SMTPRecipientsRefused({"a": (451, b""), "b": (550, b"")}),
            "FAILED",
            SendReport(failed=1),
        ),
        (smtplib.SMTPDataError(554, b""), "FAILED", SendReport(failed=1)),
        (smtplib.SMTPDataError(452, b""), "PENDING", SendReport(later=1)),
    ],
)
def test_what_a_failed_send_proves(monkeypatch, error, status, report):
    _queue()

    class Broken(EmailBackend):
        def send_messages(self, messages):
            raise error

    monkeypatch.setattr(notifications, "get_connection", Broken)

    assert notifications.send_due() == report
    assert notifications.send_due() == SendReport()  # a PENDING one waits for its back-off
    assert _statuses() == [status]


@pytest.mark.parametrize(
    "error",
    [
        socket.gaierror(socket.EAI_AGAIN, "no such name now"),
        OSError(errno.EHOSTUNREACH, "no route to host"),
        TimeoutError(),
        ConnectionRefusedError(),
        smtplib.SMTPServerDisconnected("gone before it said who it is"),
        smtplib.SMTPConnectError(421, b"too busy"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_fails_before_the_connection_is_open_was_not_sent(monkeypatch, settings, error):
    """The real backend: what it raises while it connects, it also raises while it sends."""
    settings.EMAIL_BACKEND = f"{smtp.__name__}.EmailBackend"
    _queue()

    def connect(self, *_):
        raise error

    monkeypatch.setattr(smtplib.SMTP, "connect", connect)

    assert notifications.send_due() == SendReport(later=1)
    assert rows("SELECT status, error FROM orders_notification") == [
        ("PENDING", type(error).__name__)
    ]
    execute("UPDATE orders_notification SET tries = 9, next_try_at = now()")
    assert notifications.send_due() == SendReport(failed=1)


class Recorded(EmailBackend):
    calls: ClassVar[list[str]] = []

    def open(self):
        self.calls.append("open")

    def send_messages(self, messages):
        self.calls.append("send")
        return super().send_messages(messages)

    def close(self):
        self.calls.append(f"close {_statuses()}")
        raise smtplib.SMTPResponseException(500, b"no goodbye")


def test_the_connection_is_closed_when_the_row_says_how_it_went(monkeypatch):
    _queue()
    monkeypatch.setattr(Recorded, "calls", [])
    monkeypatch.setattr(notifications, "get_connection", Recorded)

    assert notifications.send_due() == SendReport(sent=1)

    assert Recorded.calls == ["open", "send", "close ['SENT']"]
    assert len(mail.outbox) == 1


@pytest.mark.parametrize("backend", ["console", "filebased", "dummy"])
def test_a_backend_without_a_connection_sends_as_well(settings, tmp_path, capsys, backend):
    settings.EMAIL_BACKEND = f"django.core.mail.backends.{backend}.EmailBackend"
    settings.EMAIL_FILE_PATH = tmp_path
    event = _queue()

    assert notifications.send_due() == SendReport(sent=1)

    written = capsys.readouterr().out + "".join(file.read_text() for file in tmp_path.iterdir())
    assert written.count(f"Subject: Your order is paid: {event.order_id}") == (backend != "dummy")


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

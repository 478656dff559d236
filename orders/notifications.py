"""Sends the queued mails, one at a time: PENDING → SENDING (committed) → sent → SENT.

The row says SENDING before anything leaves, and nothing is sent inside a transaction. Whoever dies
or loses the answer in SENDING leaves a row that becomes UNKNOWN: it is listed in the admin and
never sent again by itself, because the buyer may have the mail. Celery calls `send_due`.
"""

import smtplib
import time
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

import structlog
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.core.mail import EmailMessage, get_connection

import faultpoint
from orders.amounts import money
from orders.contracts import ORDER_PAID
from orders.database import execute, fetch
from orders.states import NotificationStatus

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
    from django.core.mail.backends.base import BaseEmailBackend

log = structlog.get_logger(__name__)

RESEND_PERMISSION: Final = "orders.resend_notification"
SENDING_S: Final = 60  # far above EMAIL_TIMEOUT: an older SENDING has nobody behind it
_MAX_TRIES: Final = 10
# While the mail is sent: the server refused before it took it, or nothing reached it (a backend may
# connect only then). What fails while the connection is opened is certainly not sent, too.
_NOT_SENT: Final = (
    ConnectionRefusedError,
    smtplib.SMTPConnectError,
    smtplib.SMTPHeloError,
    smtplib.SMTPAuthenticationError,
    smtplib.SMTPSenderRefused,
    smtplib.SMTPNotSupportedError,
)
_REFUSED: Final = (smtplib.SMTPRecipientsRefused, smtplib.SMTPDataError)

_CLAIM: Final = """
UPDATE orders_notification SET status = 'SENDING', sending_at = clock_timestamp(), tries = tries + 1
WHERE id = (
    SELECT id FROM orders_notification
    WHERE status = 'PENDING' AND next_try_at <= clock_timestamp()
    ORDER BY next_try_at, id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id, source_type, source_id, user_id, amount_cents, currency, sending_at, tries
"""

# Fenced by the claim's own instant: a later claim of the same row is not ours to end.
_END: Final = """
UPDATE orders_notification SET status = %s, error = %s,
    sent_at = CASE WHEN %s THEN clock_timestamp() END,
    next_try_at = clock_timestamp() + %s * interval '1 second'
WHERE id = %s AND sending_at = %s AND status IN ('SENDING', 'UNKNOWN')
"""

_LOST: Final = """
UPDATE orders_notification SET status = 'UNKNOWN', error = 'the sender did not come back'
WHERE status = 'SENDING' AND sending_at < clock_timestamp() - %s * interval '1 second'
RETURNING id
"""

_AGAIN: Final = """
UPDATE orders_notification SET status = 'PENDING', next_try_at = clock_timestamp(), tries = 0
WHERE id = %s AND status IN ('UNKNOWN', 'FAILED')
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class SendReport:
    """What one round did."""

    sent: int = 0
    unknown: int = 0
    failed: int = 0
    later: int = 0
    skipped: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Mail:
    id: int
    source_type: str
    order_id: str
    user_id: str
    amount_cents: int
    currency: str
    sending_at: datetime
    tries: int


def send_due(*, limit: int = 100, budget_s: float = 20.0) -> SendReport:
    """Send what is due, oldest first; with mail switched off rows stay PENDING.

    Args:
        limit: most mails.
        budget_s: no mail is begun after this many seconds.

    Cost: two statements and one conversation with the mail server a mail.
    """
    counts = dict.fromkeys(SendReport.__dataclass_fields__, 0)
    counts["unknown"] = len(fetch(_LOST, (SENDING_S,)))
    if counts["unknown"]:
        log.error("notifications_unknown", count=counts["unknown"])
    deadline = time.monotonic() + budget_s
    while settings.SECKILL_MAIL and limit > 0 and time.monotonic() < deadline:
        rows = fetch(_CLAIM)
        if not rows:
            break
        faultpoint.hit("notify.sending")
        counts[_send(_Mail(**dict(zip(_Mail.__dataclass_fields__, rows[0], strict=True))))] += 1
        limit -= 1
    return SendReport(**counts)


def send_again(*, notification_id: int, user: "AbstractBaseUser | AnonymousUser") -> bool:
    """Queue an UNKNOWN or FAILED mail again, for an operator who knows that it did not arrive.

    Raises:
        PermissionDenied: the user may not.
    """
    if not user.has_perm(RESEND_PERMISSION):  # type: ignore[union-attr]
        raise PermissionDenied(RESEND_PERMISSION)
    done = execute(_AGAIN, (notification_id,)) == 1
    if done:
        log.info(
            "notification_queued_again",
            notification_id=notification_id,
            operator=user.get_username(),
        )
    return done


def address_of(user_id: str) -> str:
    """Return a buyer's address: his id when it is one, else his id at SECKILL_MAIL_DOMAIN."""
    if "@" in user_id.strip("@"):
        return user_id
    return f"{user_id}@{settings.SECKILL_MAIL_DOMAIN}" if settings.SECKILL_MAIL_DOMAIN else ""


def _send(mail: _Mail) -> str:
    """Send one claimed mail outside any transaction; returns what it counts as."""
    address = address_of(mail.user_id)
    if not address:
        return _end(mail, NotificationStatus.SKIPPED, "no address", counts_as="skipped")
    with ExitStack() as stack:
        try:
            server = get_connection()
            stack.callback(_close, server)
            server.open()
        except Exception as error:  # no name, no route, no answer, no login: nothing was sent
            return _not_sent(mail, error)
        return _hand_over(mail, address, server)


def _hand_over(mail: _Mail, address: str, server: "BaseEmailBackend") -> str:
    """Send over an open connection; only here may a failure leave a mail that has arrived."""
    try:
        _message(mail, address, server).send()
    except _NOT_SENT as error:
        return _not_sent(mail, error)
    except _REFUSED as error:
        if _asks_to_retry(error):
            return _not_sent(mail, error)
        return _end(mail, NotificationStatus.FAILED, _name(error), counts_as="failed")
    except Exception as error:  # whatever else: it may have gone out
        return _end(mail, NotificationStatus.UNKNOWN, _name(error), counts_as="unknown")
    faultpoint.hit("notify.sent")
    return _end(mail, NotificationStatus.SENT, "", counts_as="sent")


def _not_sent(mail: _Mail, error: Exception) -> str:
    if mail.tries >= _MAX_TRIES:
        return _end(mail, NotificationStatus.FAILED, _name(error), counts_as="failed")
    return _end(mail, NotificationStatus.PENDING, _name(error), counts_as="later")


def _asks_to_retry(error: smtplib.SMTPRecipientsRefused | smtplib.SMTPDataError) -> bool:
    """Whether every code of a refusal is 4xx: greylisting, a full mailbox, a busy server."""
    if isinstance(error, smtplib.SMTPDataError):
        codes = [error.smtp_code]
    else:
        codes = [code for code, _ in error.recipients.values()]
    return bool(codes) and all(400 <= code < 500 for code in codes)


def _close(server: "BaseEmailBackend") -> None:
    """Close the connection. The row says already how it went: a bad goodbye changes nothing."""
    try:
        server.close()
    except Exception as error:
        log.info("mail_connection_not_closed", error=_name(error))


def _end(mail: _Mail, status: NotificationStatus, error: str, *, counts_as: str) -> str:
    sent = status is NotificationStatus.SENT
    delay_s = min(600, 5 * 2**mail.tries)
    execute(_END, (status.value, error, sent, delay_s, mail.id, mail.sending_at))
    if not sent:
        log.warning(
            "notification_not_sent",
            notification_id=mail.id,
            order_id=mail.order_id,
            status=status.value,
            error=error,
        )
    return counts_as


def _message(mail: _Mail, address: str, server: "BaseEmailBackend") -> EmailMessage:
    amount = money(mail.amount_cents, mail.currency)
    if mail.source_type == ORDER_PAID:
        subject, text = "Your order is paid", f"Thank you: we have received {amount}."
    else:
        subject, text = "Your order is refunded", f"We have sent {amount} back to you."
    return EmailMessage(
        subject=f"{subject}: {mail.order_id}",
        body=f"{text}\n\nOrder {mail.order_id}\n",
        to=[address],
        # The same id whenever this mail is sent: mail servers can tell a double.
        headers={"Message-ID": f"<seckill-{mail.source_type}-{mail.order_id}@notifications>"},
        connection=server,
    )


def _name(error: Exception) -> str:
    return type(error).__name__

"""Mails of the desk: a new ticket, a reminder, an escalation, broken glass. Sent by Celery.

No data of a buyer is in them: codes, counts and the ticket's number. What is told at once is
queued by `announce` and `announce_glass` and sent by the two tasks; `dlq_admin.tasks` imports this
module, so that Celery finds them.
"""

import smtplib
from typing import TYPE_CHECKING, Final

import structlog
from celery import shared_task
from django.conf import settings
from django.contrib.auth.models import User
from django.core.mail import EmailMessage

from dlq_admin.models.replay import BreakGlass
from dlq_admin.models.ticket import Ticket
from dlq_admin.permissions import INCIDENT_LEAD
from dlq_admin.states import SlaKind
from dlq_admin.tickets.sla import Alarm

if TYPE_CHECKING:
    from celery import Task

log = structlog.get_logger(__name__)

_SUBJECT: Final = "DLQ-{pk} {severity}: {what}"
_RETRIED: Final = (OSError, smtplib.SMTPException)  # the mail server is away, or says no
_PROMISED: Final = {SlaKind.GLASS: "approve what was started behind broken glass"}


def announce(ticket_id: int) -> None:
    """Have a new ticket announced; without Celery's broker it only stands on the desk."""
    _queue(announce_ticket, ticket_id)


def announce_glass(batch_id: int) -> None:
    """Have on-call and the incident leads told of broken glass, as `announce` does."""
    _queue(announce_broken_glass, batch_id)


@shared_task(
    name="dlq_admin.tasks.announce_ticket",
    autoretry_for=_RETRIED,
    retry_backoff=True,
    max_retries=5,
)
def announce_ticket(ticket_id: int) -> bool:
    """Mail on-call about a new ticket; returns whether a mail went out."""
    ticket = Ticket.objects.select_related("failure_group").get(pk=ticket_id)
    return _send(ticket, what=f"new, for {ticket.owner}", to=list(settings.SECKILL_ONCALL_MAIL))


@shared_task(
    name="dlq_admin.tasks.announce_broken_glass",
    autoretry_for=_RETRIED,
    retry_backoff=True,
    max_retries=5,
)
def announce_broken_glass(batch_id: int) -> bool:
    """Mail on-call and the leads that a plan was started without approval; returns whether."""
    glass = BreakGlass.objects.select_related("user", "batch__ticket__failure_group").get(
        batch_id=batch_id
    )
    what = (
        f"{glass.user.get_username()} broke the glass of batch {batch_id}: approve it"
        f" before {glass.due_at:%H:%M} UTC"
    )
    to = [*settings.SECKILL_ONCALL_MAIL, *_leads()]
    return _send(glass.batch.ticket, what=what, to=to)


def mail_alarm(alarm: Alarm) -> bool:
    """Mail a reminder to whoever has the ticket, an escalation to the incident leads as well."""
    ticket = Ticket.objects.select_related("failure_group", "assignee").get(pk=alarm.ticket_id)
    to = [ticket.assignee.email] if ticket.assignee and ticket.assignee.email else []
    if alarm.breached:
        to += _leads()
    if alarm.breached or not to:
        to += settings.SECKILL_ONCALL_MAIL
    state = "is broken" if alarm.breached else "is half over"
    promise = _PROMISED.get(alarm.kind, alarm.kind.lower())
    what = f"the promise to {promise} {state} ({alarm.due_at:%H:%M} UTC)"
    return _send(ticket, what=what, to=to)


def _leads() -> list[str]:
    leads = User.objects.filter(groups__name=INCIDENT_LEAD, is_active=True).exclude(email="")
    return list(leads.order_by("pk").values_list("email", flat=True))


def _queue(task: "Task[[int], bool]", pk: int) -> None:
    if not settings.CELERY_BROKER_URL:
        return
    try:
        task.apply_async(args=(pk,), retry=False)
    except Exception as error:  # the mail is a courtesy: what it tells of is committed
        log.warning("mail_not_queued", task=task.name, pk=pk, error=type(error).__name__)


def _send(ticket: Ticket, *, what: str, to: list[str]) -> bool:
    log.warning("dlq_notice", ticket_id=ticket.pk, what=what, recipients=len(set(to)))
    if not settings.SECKILL_MAIL or not to:
        return False
    cause = ticket.failure_group
    EmailMessage(
        subject=_SUBJECT.format(pk=ticket.pk, severity=ticket.severity, what=what),
        body=(
            f"{ticket.title}\n{cause.sample}\n\n"
            f"group {cause.consumer_group}, {ticket.message_count} messages, {ticket.status}\n"
            f"The desk: /admin/dlq/tickets/{ticket.pk}/\n"
        ),
        to=sorted(set(to)),
    ).send()
    return True

"""Mails of the desk: a new ticket, a reminder, an escalation. Sent by Celery, never by a loop.

No data of a buyer is in them: codes, counts and the ticket's number.
"""

from typing import Final

import structlog
from django.conf import settings
from django.contrib.auth.models import User
from django.core.mail import EmailMessage

from dlq_admin.models.ticket import Ticket
from dlq_admin.permissions import INCIDENT_LEAD
from dlq_admin.tickets.sla import Alarm

log = structlog.get_logger(__name__)

_SUBJECT: Final = "DLQ-{pk} {severity}: {what}"


def announce(ticket_id: int) -> None:
    """Have a new ticket announced; without Celery's broker it only stands on the desk."""
    if not settings.CELERY_BROKER_URL:
        return
    from dlq_admin.tasks import announce_ticket

    try:
        announce_ticket.apply_async(args=(ticket_id,), retry=False)
    except Exception as error:  # the mail is a courtesy: the ticket is committed
        log.warning("ticket_not_announced", ticket_id=ticket_id, error=type(error).__name__)


def mail_new(ticket_id: int) -> bool:
    """Mail on-call about a new ticket; returns whether a mail went out."""
    ticket = Ticket.objects.select_related("failure_group").get(pk=ticket_id)
    return _send(ticket, what=f"new, for {ticket.owner}", to=list(settings.SECKILL_ONCALL_MAIL))


def mail_alarm(alarm: Alarm) -> bool:
    """Mail a reminder to whoever has the ticket, an escalation to the incident leads as well."""
    ticket = Ticket.objects.select_related("failure_group", "assignee").get(pk=alarm.ticket_id)
    to = [ticket.assignee.email] if ticket.assignee and ticket.assignee.email else []
    if alarm.breached:
        leads = User.objects.filter(groups__name=INCIDENT_LEAD, is_active=True).exclude(email="")
        to += list(leads.order_by("pk").values_list("email", flat=True))
    if alarm.breached or not to:
        to += settings.SECKILL_ONCALL_MAIL
    state = "is broken" if alarm.breached else "is half over"
    what = f"the promise to {alarm.kind.lower()} {state} ({alarm.due_at:%H:%M} UTC)"
    return _send(ticket, what=what, to=to)


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

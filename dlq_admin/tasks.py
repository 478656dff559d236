"""Scheduled work of the desk (see seckill/celery.py): clocks, mails, parked tickets, anchors.

What is mailed at once are tasks, too: they are registered with `dlq_admin.tickets.notices`.
"""

import smtplib

import structlog
from celery import shared_task

from dlq_admin.audit.anchor import write_anchor
from dlq_admin.audit.verify import verify
from dlq_admin.pages import once
from dlq_admin.tickets import notices, sla, triage

log = structlog.get_logger(__name__)


@shared_task(name="dlq_admin.tasks.keep_promises")
def keep_promises() -> int:
    """Take up what has waited long enough, ring the clocks, mail; returns how many rang.

    What rang is committed before its mail: a mail server that is away costs a mail, never a record.
    """
    triage.resume_due()
    sla.follow_approvals()
    alarms = sla.ring()
    for alarm in alarms:
        try:
            notices.mail_alarm(alarm)
        except (OSError, smtplib.SMTPException) as error:
            log.error("dlq_mail_failed", ticket_id=alarm.ticket_id, error=type(error).__name__)
    return len(alarms)


@shared_task(name="dlq_admin.tasks.anchor_audit")
def anchor_audit() -> str:
    """Anchor the audit chains that grew in the last hour; returns the anchor's hash."""
    return write_anchor()


@shared_task(name="dlq_admin.tasks.verify_audit")
def verify_audit() -> int:
    """Compute every audit hash again; returns how many findings there are. An alert asks for 0."""
    findings = verify().findings
    for finding in findings:
        log.error("audit_finding", chain=finding.chain, seq=finding.seq, what=finding.what)
    return len(findings)


@shared_task(name="dlq_admin.tasks.forget_submissions")
def forget_submissions() -> int:
    """Delete the keys of forms that nobody can send again; returns how many went."""
    return once.forget_submissions()

"""∅ → NEW: what died goes to the open ticket of its failure, or opens one."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import structlog
from django.db import connection, transaction
from django.db.models import F
from django.db.models.functions import Now

from dlq_admin import audit
from dlq_admin.audit.record import SYSTEM
from dlq_admin.contracts import TicketEvent
from dlq_admin.models.message import DlqMessage, FailureGroup
from dlq_admin.models.ticket import Ticket
from dlq_admin.states import TICKET_OPEN, SlaKind, TicketStatus
from dlq_admin.tickets import sla
from dlq_admin.tickets.moves import clock, lock
from dlq_admin.tickets.notices import announce
from dlq_admin.tickets.owners import owner_of, severity_of
from dlq_admin.tickets.replaying import back_to_fixing
from dlq_admin.tickets.triage import reopen_locked
from inventory.selectors import activity_record

log = structlog.get_logger(__name__)

RECURRENCE: Final = timedelta(days=7)
_BEFORE_START: Final = timedelta(minutes=30)
_OPEN: Final = sorted(status.value for status in TICKET_OPEN)

# Any sale that runs now, for messages that do not tell their own.
_SALE_NOW: Final = """
SELECT EXISTS (SELECT 1 FROM inventory_activity
    WHERE opened_at IS NOT NULL AND starts_at <= now() AND ends_at > now())
"""


def attach(rows: Sequence[DlqMessage]) -> None:
    """Bring open messages to tickets, inside the capturing transaction.

    A message whose replay is under way stays with its ticket. One ticket for each failure: the
    open one; else the one that it was merged into; else a CLOSED one of the last 7 days is opened
    again; else a new one.

    Cost: for each failure three statements, seven when it opens or reopens a ticket.
    """
    for cause in {row.failure_group_id: row.failure_group for row in rows}.values():
        mine = [row for row in rows if row.failure_group_id == cause.pk]
        ticket = _ticket(cause, mine)
        new = [row for row in mine if row.ticket_id != ticket.pk]
        stay = _with_other_open(new)
        moved = DlqMessage.objects.filter(
            pk__in=[row.pk for row in new if row.pk not in stay]
        ).update(ticket_id=ticket.pk)
        Ticket.objects.filter(pk=ticket.pk).update(
            message_count=F("message_count") + moved, last_message_at=Now()
        )
        if moved:
            audit.record(
                ticket_id=ticket.pk,
                kind=TicketEvent.MESSAGE_ATTACHED,
                actor=SYSTEM,
                detail={"messages": moved, "first": new[0].message_id},
            )
        if ticket.status == TicketStatus.VERIFYING:
            back_to_fixing(ticket, reason="the same failure killed a message again")


def _ticket(cause: FailureGroup, rows: Sequence[DlqMessage]) -> Ticket:
    newest = Ticket.objects.filter(failure_group_id=cause.pk).order_by("-pk").first()
    open_ = Ticket.objects.filter(failure_group_id=cause.pk, status__in=_OPEN).first()
    found = open_ or newest
    while found is not None and found.status == TicketStatus.MERGED:
        found = found.merged_into
    if found is not None:
        found = lock(found.pk)
        if found.status in TICKET_OPEN:
            return found
        if found.status == TicketStatus.CLOSED and clock() - _closed(found) <= RECURRENCE:
            reopen_locked(found, actor=SYSTEM, reason="the same failure came back")
            return lock(found.pk)
    return _open(cause, rows[0])


def _open(cause: FailureGroup, first: DlqMessage) -> Ticket:
    in_sale = _in_sale(first.activity_id)
    group = cause.consumer_group
    ticket = Ticket.objects.create(
        failure_group=cause,
        title=f"{cause.error_class} in {group.removeprefix('CG_SECKILL_')}"[:200],
        severity=severity_of(group=group, in_sale=in_sale),
        in_sale=in_sale,
        activity_id=first.activity_id,
        owner=owner_of(group=group, topic=first.topic, error_class=cause.error_class),
    )
    sla.start(ticket, SlaKind.ACK, SlaKind.PLAN, SlaKind.RESOLVE)
    audit.record(
        ticket_id=ticket.pk,
        kind=TicketEvent.OPENED,
        actor=SYSTEM,
        detail={
            "group": group,
            "error_class": cause.error_class,
            "fingerprint": cause.fingerprint,
            "severity": ticket.severity,
            "owner": ticket.owner,
        },
    )
    log.error(
        "dlq_ticket_opened",
        alert="DLQ_TICKET",
        ticket_id=ticket.pk,
        consumer_group=group,
        error_class=cause.error_class,
        severity=ticket.severity,
        owner=ticket.owner,
    )
    transaction.on_commit(lambda: announce(ticket.pk))
    return lock(ticket.pk)


def _in_sale(activity_id: int | None) -> bool:
    """Tell whether the message's sale runs (from half an hour before its start); else any sale."""
    record = activity_record(activity_id) if activity_id else None
    if record is not None:
        now: datetime = clock()
        return record.starts_at - _BEFORE_START <= now < record.ends_at
    with connection.cursor() as cursor:
        cursor.execute(_SALE_NOW)
        return bool(cursor.fetchone()[0])


def _with_other_open(rows: Sequence[DlqMessage]) -> set[int]:
    """Return messages that another open ticket deals with: its plan must not lose them."""
    owned = {row.pk: row.ticket_id for row in rows if row.ticket_id}
    open_ = set(
        Ticket.objects.filter(pk__in=set(owned.values()), status__in=_OPEN).values_list(
            "pk", flat=True
        )
    )
    return {pk for pk, ticket_id in owned.items() if ticket_id in open_}


def _closed(ticket: Ticket) -> datetime:
    at: datetime = ticket.closed_at or ticket.status_at
    return at

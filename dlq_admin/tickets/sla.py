"""SLA clocks: acknowledge, plan, approve, resolve; tight while a sale runs.

At half of the time somebody is reminded, at the end it is escalated; each once, each an audit
event. A WAITING ticket's clocks stand still, but for the one of broken glass.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.db import connection, transaction
from django.db.models import F, Q

from dlq_admin import audit
from dlq_admin.audit.record import SYSTEM
from dlq_admin.contracts import TicketEvent
from dlq_admin.models.ticket import SlaClock, Ticket
from dlq_admin.states import SlaKind, TicketStatus
from dlq_admin.tickets.moves import clock

# (during a sale, else)
PROMISED: Final[dict[SlaKind, tuple[timedelta, timedelta]]] = {
    SlaKind.ACK: (timedelta(minutes=5), timedelta(minutes=30)),
    SlaKind.PLAN: (timedelta(minutes=15), timedelta(minutes=60)),
    SlaKind.APPROVE: (timedelta(minutes=10), timedelta(minutes=60)),
    SlaKind.RESOLVE: (timedelta(minutes=30), timedelta(hours=4)),
    SlaKind.GLASS: (timedelta(hours=1), timedelta(hours=1)),
}

# Replay batches that wait for an approval, and since when; tickets whose discard waits.
_ASKED: Final = """
SELECT ticket_id, min(since) FROM (
    SELECT ticket_id, requested_at AS since FROM dlq_admin_replay_batch
     WHERE status = 'PENDING_APPROVAL' AND requested_at IS NOT NULL
    UNION ALL
    SELECT id, status_at FROM dlq_ticket WHERE status = 'DISCARD_PENDING'
) AS asked GROUP BY ticket_id
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Alarm:
    """A promise that is half over (`breached` False) or broken."""

    ticket_id: int
    kind: SlaKind
    breached: bool
    due_at: datetime


def start(ticket: Ticket, *kinds: SlaKind, at: datetime | None = None) -> None:
    """Start clocks of a ticket inside the caller's transaction; one that runs goes on."""
    at = at or clock()
    SlaClock.objects.bulk_create(
        [
            SlaClock(
                ticket_id=ticket.pk,
                kind=kind,
                started_at=at,
                remind_at=at + PROMISED[kind][not ticket.in_sale] / 2,
                due_at=at + PROMISED[kind][not ticket.in_sale],
            )
            for kind in kinds
        ],
        ignore_conflicts=True,
    )


def stop(ticket_id: int, *kinds: SlaKind) -> None:
    """Stop clocks inside the caller's transaction; all of them when none is named."""
    running = SlaClock.objects.filter(ticket_id=ticket_id, stopped_at__isnull=True)
    if kinds:
        running = running.filter(kind__in=kinds)
    running.update(stopped_at=clock())


def shift(ticket_id: int, *, by: timedelta) -> None:
    """Move the ends of the running clocks: the ticket waited for so long."""
    SlaClock.objects.filter(ticket_id=ticket_id, stopped_at__isnull=True).exclude(
        kind=SlaKind.GLASS
    ).update(remind_at=F("remind_at") + by, due_at=F("due_at") + by)


def follow_approvals() -> None:
    """Start and stop the APPROVE clocks: an approval is asked for, or nobody asks any more."""
    with transaction.atomic(durable=True):
        with connection.cursor() as cursor:
            cursor.execute(_ASKED)
            asked = dict(cursor.fetchall())
        for ticket in Ticket.objects.filter(pk__in=asked):
            start(ticket, SlaKind.APPROVE, at=asked[ticket.pk])
        SlaClock.objects.filter(kind=SlaKind.APPROVE, stopped_at__isnull=True).exclude(
            ticket_id__in=asked
        ).exclude(ticket__status=TicketStatus.WAITING).update(stopped_at=clock())


def ring() -> list[Alarm]:
    """Note what is half over or broken, each once; returns it for the mails.

    Cost: two statements on partial indexes, and one transaction for each clock that rings.
    """
    now = clock()
    alarms: list[Alarm] = []
    running = SlaClock.objects.filter(stopped_at__isnull=True).exclude(
        ~Q(kind=SlaKind.GLASS), ticket__status=TicketStatus.WAITING
    )
    due = running.filter(
        Q(remind_at__lte=now, reminded_at__isnull=True)
        | Q(due_at__lte=now, breached_at__isnull=True)
    )
    for pk in due.order_by("due_at").values_list("pk", flat=True)[:500]:
        with transaction.atomic(durable=True):
            row = SlaClock.objects.select_for_update(of=("self",)).get(pk=pk)
            breached = row.due_at <= now and row.breached_at is None
            if row.stopped_at is not None or not (breached or row.reminded_at is None):
                continue
            SlaClock.objects.filter(pk=pk).update(
                reminded_at=row.reminded_at or now, breached_at=now if breached else row.breached_at
            )
            audit.record(
                ticket_id=row.ticket_id,
                kind=TicketEvent.SLA_BREACHED if breached else TicketEvent.SLA_REMINDED,
                actor=SYSTEM,
                detail={"clock": row.kind, "due_at": row.due_at.isoformat()},
            )
        alarms.append(
            Alarm(
                ticket_id=row.ticket_id,
                kind=SlaKind(row.kind),
                breached=breached,
                due_at=row.due_at,
            )
        )
    return alarms

"""Tickets for the inbox and for their own page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db import connection
from django.utils import timezone

from dlq_admin.models.ticket import SlaClock, Ticket
from dlq_admin.states import TICKET_OPEN, SlaKind, TicketStatus
from messaging.topology import CG_ORDER_CREATE

SPARK_HOURS: Final = 24
COUNT_LIMIT: Final = 1_000
_OPEN: Final = sorted(status.value for status in TICKET_OPEN)
_PEOPLE: Final = (
    "failure_group", "assignee", "discard_requested_by", "discard_approved_by", "closed_by",
)  # fmt: skip

# Open messages of tickets and those that hold a buyer's unit, counted no further than shown.
_COUNTS: Final = """
SELECT t.id, n.open, n.held
FROM unnest(%s::bigint[]) AS t(id)
CROSS JOIN LATERAL (
    SELECT count(*) AS open, count(*) FILTER (WHERE held) AS held
    FROM (SELECT consumer_group = %s AND reservation_id <> '' AS held FROM dlq_message
          WHERE ticket_id = t.id AND status = 'OPEN' LIMIT %s) AS m
) AS n
"""
# Deaths of tickets in each of the last hours, of their newest thousand messages.
_SPARKS: Final = """
SELECT t.id, floor(extract(epoch FROM now() - m.first_seen_at) / 3600)::int AS ago, count(*)
FROM unnest(%s::bigint[]) AS t(id)
CROSS JOIN LATERAL (
    SELECT first_seen_at FROM dlq_message WHERE ticket_id = t.id ORDER BY id DESC LIMIT %s
) AS m
WHERE m.first_seen_at > now() - interval '24 hours'
GROUP BY 1, 2
"""
# Deaths in each minute of the last hour.
_INFLOW: Final = """
SELECT floor(extract(epoch FROM now() - first_seen_at) / 60)::int AS ago, count(*)
FROM (SELECT first_seen_at FROM dlq_message WHERE first_seen_at > now() - interval '1 hour'
      ORDER BY first_seen_at DESC LIMIT 20000) AS newest
GROUP BY 1
"""
# Open messages by age, of the oldest and newest so many.
_AGES: Final = """
SELECT bucket, count(*) FROM (
    SELECT width_bucket(extract(epoch FROM now() - first_seen_at),
                        ARRAY[0, 300, 900, 3600, 14400, 86400]::float8[]) AS bucket
    FROM dlq_message WHERE status = 'OPEN' LIMIT %s) AS open
GROUP BY 1
"""
AGES: Final = ("< 5 min", "5 to 15", "to 1 h", "to 4 h", "to 1 d", "older")


@dataclass(frozen=True, kw_only=True, slots=True)
class Clock:
    """An SLA promise. `tone`: bad when broken, warn when half of its time is over, else good."""

    kind: str
    due_at: datetime
    stopped_at: datetime | None
    tone: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TicketLine:
    """A ticket as the inbox shows it. `spark`: deaths in each of the last 24 hours."""

    id: int
    status: str
    severity: str
    title: str
    group: str
    error_class: str
    sample: str
    messages: int
    open: int
    owner: str
    assignee: str
    opened_at: datetime
    last_message_at: datetime
    clock: Clock | None
    spark: Sequence[int]


@dataclass(frozen=True, kw_only=True, slots=True)
class TicketView:
    """A ticket whole."""

    id: int
    status: TicketStatus
    severity: str
    in_sale: bool
    title: str
    group: str
    error_class: str
    sample: str
    messages: int
    open: int
    held: int
    owner: str
    assignee: str
    assignee_id: int | None
    cause: str
    disposition: str
    analysis: str
    fix_reference: str
    fix_build: int | None
    waiting_from: str
    waiting_until: datetime | None
    waiting_reason: str
    discard_requested_by: str
    discard_requested_by_id: int | None
    discard_reason: str
    discard_approved_by: str
    merged_into: int | None
    closed_by: str
    closed_at: datetime | None
    opened_at: datetime
    status_at: datetime
    clocks: Sequence[Clock]

    @property
    def over(self) -> bool:
        """Whether nothing is done on it any more."""
        return self.status not in TICKET_OPEN


def ticket_page(*, before: int, limit: int, show: str) -> list[TicketLine]:
    """Return tickets with smaller ids, the newest first. Four statements.

    Args:
        before: id to end before.
        limit: at most so many.
        show: "open", "over", a status, or empty for all.
    """
    found = Ticket.objects.select_related("failure_group", "assignee").filter(pk__lt=before)
    if show == "over":
        found = found.exclude(status__in=_OPEN)
    elif show == "open":
        found = found.filter(status__in=_OPEN)
    elif show:
        found = found.filter(status=show)
    rows = list(found.order_by("-pk")[:limit])
    ids = [row.pk for row in rows]
    counted, sparks, clocks = _counts(ids), _sparks(ids), _clocks(ids)
    return [
        TicketLine(
            id=row.pk,
            status=row.status,
            severity=row.severity,
            title=row.title,
            group=row.failure_group.consumer_group,
            error_class=row.failure_group.error_class,
            sample=row.failure_group.sample,
            messages=row.message_count,
            open=counted.get(row.pk, (0, 0))[0],
            owner=row.owner,
            assignee=row.assignee.get_username() if row.assignee else "",
            opened_at=row.opened_at,
            last_message_at=row.last_message_at,
            clock=next((c for c in clocks.get(row.pk, []) if c.stopped_at is None), None),
            spark=sparks.get(row.pk, [0] * SPARK_HOURS),
        )
        for row in rows
    ]


def ticket_view(ticket_id: int) -> TicketView | None:
    """Return a ticket; None when there is none. Three statements."""
    row = Ticket.objects.select_related(*_PEOPLE).filter(pk=ticket_id).first()
    if row is None:
        return None
    open_, held = _counts([row.pk]).get(row.pk, (0, 0))

    def name(person: Any) -> str:
        return person.get_username() if person else ""

    return TicketView(
        id=row.pk,
        status=TicketStatus(row.status),
        severity=row.severity,
        in_sale=row.in_sale,
        title=row.title,
        group=row.failure_group.consumer_group,
        error_class=row.failure_group.error_class,
        sample=row.failure_group.sample,
        messages=row.message_count,
        open=open_,
        held=held,
        owner=row.owner,
        assignee=name(row.assignee),
        assignee_id=row.assignee.pk if row.assignee else None,
        cause=row.cause,
        disposition=row.disposition,
        analysis=row.analysis,
        fix_reference=row.fix_reference,
        fix_build=row.fix_build,
        waiting_from=row.waiting_from,
        waiting_until=row.waiting_until,
        waiting_reason=row.waiting_reason,
        discard_requested_by=name(row.discard_requested_by),
        discard_requested_by_id=row.discard_requested_by.pk if row.discard_requested_by else None,
        discard_reason=row.discard_reason,
        discard_approved_by=name(row.discard_approved_by),
        merged_into=row.merged_into_id,
        closed_by=name(row.closed_by),
        closed_at=row.closed_at,
        opened_at=row.opened_at,
        status_at=row.status_at,
        clocks=_clocks([row.pk]).get(row.pk, []),
    )


def inflow() -> list[int]:
    """Return deaths in each of the last 60 minutes, the oldest first. One statement."""
    minutes = [0] * 60
    for ago, count in _rows(_INFLOW):
        if 0 <= ago < 60:
            minutes[59 - ago] = count
    return minutes


def ages() -> list[int]:
    """Return open messages by age, see AGES; at most so many are looked at. One statement."""
    counts = [0] * len(AGES)
    for bucket, count in _rows(_AGES, COUNT_LIMIT * 5):
        counts[min(max(bucket - 1, 0), len(AGES) - 1)] += count
    return counts


def _counts(ids: Sequence[int]) -> dict[int, tuple[int, int]]:
    rows = _rows(_COUNTS, list(ids), CG_ORDER_CREATE, COUNT_LIMIT + 1)
    return {ticket: (open_, held) for ticket, open_, held in rows}


def _sparks(ids: Sequence[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for ticket, ago, count in _rows(_SPARKS, list(ids), COUNT_LIMIT):
        if 0 <= ago < SPARK_HOURS:
            found.setdefault(ticket, [0] * SPARK_HOURS)[SPARK_HOURS - 1 - ago] = count
    return found


def _clocks(ids: Sequence[int]) -> Mapping[int, list[Clock]]:
    """Return the newest clock of each kind, those that run and are due first in front."""
    now = timezone.now()
    newest: dict[tuple[int, str], SlaClock] = {}
    for row in SlaClock.objects.filter(ticket_id__in=list(ids)).order_by("pk"):
        newest[row.ticket_id, row.kind] = row
    found: dict[int, list[Clock]] = {}
    kinds = [kind.value for kind in SlaKind]
    for (ticket, kind), row in newest.items():
        end = row.stopped_at or now
        broken = row.breached_at is not None or end > row.due_at
        tone = "bad" if broken else "warn" if not row.stopped_at and now > row.remind_at else "good"
        found.setdefault(ticket, []).append(
            Clock(kind=kind, due_at=row.due_at, stopped_at=row.stopped_at, tone=tone)
        )
    for clocks in found.values():
        clocks.sort(key=lambda c: (c.stopped_at is not None, c.due_at, kinds.index(c.kind)))
    return found


def _rows(sql: str, *params: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall())

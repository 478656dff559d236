"""Messages whose effect is there already close by themselves, with the inbox row as evidence.

Else every storm of redeliveries would flood the desk. Items of our own (a lost gate, a payment, a
difference that the reconciler found) were never messages and have no inbox: whoever settled one
resolved its quarantine row, and that row is the evidence.
"""

from collections.abc import Sequence
from typing import Any, Final

from django.db import connection, transaction

from dlq_admin import audit
from dlq_admin.audit.record import SYSTEM
from dlq_admin.contracts import TicketEvent
from dlq_admin.models.message import DlqMessage
from dlq_admin.models.replay import ReplayItem
from dlq_admin.states import ITEM_TERMINAL, ItemStatus, MessageStatus, Resolution
from dlq_admin.tickets.close import close_if_settled, verify_ended
from dlq_admin.tickets.messages import resolve
from messaging import inbox
from messaging.inbox import InboxOutcomeRecord
from messaging.quarantine import OUTBOX_GROUP
from messaging.topology import GROUPS

PAGE: Final = 200
_ITEM_OPEN: Final = sorted(status.value for status in frozenset(ItemStatus) - ITEM_TERMINAL)
_COMPENSATED: Final = "COMPENSATED"

_OF_CONSUMERS: Final = [*sorted(group.name for group in GROUPS), OUTBOX_GROUP]

# Open messages with an inbox row, and open items whose every row is resolved, that no replay item
# deals with.
_SETTLED_MEANWHILE: Final = """
SELECT m.id FROM dlq_message m
 WHERE m.id IN (
       SELECT dead.id FROM dlq_message dead
         JOIN messaging_inbox i
           ON i.consumer_group = dead.consumer_group AND i.message_id = dead.message_id
        WHERE dead.status = 'OPEN' AND dead.id > %s
       UNION ALL
       SELECT item.id FROM dlq_message item
        WHERE item.status = 'OPEN' AND item.id > %s AND item.consumer_group <> ALL(%s)
          AND NOT EXISTS (
              SELECT 1 FROM messaging_quarantine q
               WHERE q.consumer_group = item.consumer_group AND q.message_id = item.message_id
                 AND q.status = 'OPEN'))
   AND NOT EXISTS (
       SELECT 1 FROM dlq_admin_replay_item r WHERE r.message_id = m.id AND r.status = ANY(%s))
 ORDER BY m.id LIMIT %s
"""

# The rows of items, newest last; locked, so that none dies again before its message is ended.
_ITEM_ROWS: Final = """
SELECT m.id, q.status, q.resolution, q.resolved_at FROM dlq_message m
  JOIN messaging_quarantine q
    ON q.consumer_group = m.consumer_group AND q.message_id = m.message_id
 WHERE m.id = ANY(%s)
 ORDER BY q.resolved_at, q.id
   FOR SHARE OF q
"""


def close_settled(rows: Sequence[DlqMessage]) -> set[int]:
    """End those of these open messages that have an outcome, or were settled; returns their keys.

    Left alone: what a replay item deals with; its own proof ends it. Inside the caller's
    transaction. Cost: two statements a consumer group, three for each that is ended.
    """
    busy = set(
        ReplayItem.objects.filter(
            message_id__in=[row.pk for row in rows], status__in=_ITEM_OPEN
        ).values_list("message_id", flat=True)
    )
    ended: set[int] = set()
    for group in sorted({row.consumer_group for row in rows}):
        mine = [row for row in rows if row.consumer_group == group and row.pk not in busy]
        if group not in _OF_CONSUMERS:
            ended |= _end_items(mine)
            continue
        known = inbox.outcomes(group=group, message_ids=[row.message_id for row in mine])
        for row in mine:
            outcome = known.get(row.message_id)
            if outcome is not None:
                _end(row, _resolution_of(outcome), _evidence_of(outcome))
                ended.add(row.pk)
    return ended


def _end_items(rows: Sequence[DlqMessage]) -> set[int]:
    """End those items of our own whose every quarantine row is resolved."""
    with connection.cursor() as cursor:
        cursor.execute(_ITEM_ROWS, [[row.pk for row in rows]])
        found = cursor.fetchall()
    waiting = {pk for pk, status, _, _ in found if status == "OPEN"}
    evidence = {
        pk: {"quarantine": resolution, "at": at.isoformat()}
        for pk, _, resolution, at in found
        if pk not in waiting
    }
    for row in rows:
        if row.pk in evidence:
            _end(row, Resolution.SETTLED, evidence[row.pk])
    return set(evidence)


def settle_open(*, after: int = 0) -> tuple[int, int]:
    """End a page of open messages that were settled after their death, in a transaction of its own.

    Then tickets that have nothing left to end go to their proof (`verify_ended`).

    Returns:
        How many were ended, and the key to go on after (0: start again).

    Cost: one statement over the open messages, then as `close_settled`; one over open tickets.
    """
    with transaction.atomic(durable=True):
        with connection.cursor() as cursor:
            cursor.execute(_SETTLED_MEANWHILE, [after, after, _OF_CONSUMERS, _ITEM_OPEN, PAGE])
            ids = [pk for (pk,) in cursor.fetchall()]
        rows = list(
            DlqMessage.objects.select_for_update(skip_locked=True)
            .filter(pk__in=ids, status=MessageStatus.OPEN)
            .order_by("pk")
        )
        ended = close_settled(rows)
        tickets = {row.ticket_id for row in rows if row.pk in ended and row.ticket_id}
        for ticket_id in sorted(tickets):
            close_if_settled(ticket_id)
    verify_ended()
    return len(ended), ids[-1] if len(ids) == PAGE else 0


def _evidence_of(outcome: InboxOutcomeRecord) -> dict[str, Any]:
    return {
        "inbox": outcome.outcome.value,
        "reason": outcome.reason,
        "order_id": outcome.order_id,
        "reservation_id": outcome.reservation_id,
        "at": outcome.created_at.isoformat(),
    }


def _resolution_of(outcome: InboxOutcomeRecord) -> Resolution:
    return Resolution.COMPENSATED if outcome.reason == _COMPENSATED else Resolution.SETTLED


def _end(row: DlqMessage, resolution: Resolution, evidence: dict[str, Any]) -> None:
    resolve([row], resolution=resolution, evidence=evidence)
    if row.ticket_id:
        audit.record(
            ticket_id=row.ticket_id,
            kind=TicketEvent.MESSAGE_SETTLED,
            actor=SYSTEM,
            detail={"message_id": row.message_id, "resolution": resolution.value, **evidence},
        )

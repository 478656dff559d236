"""Messages whose effect is there already close by themselves, with the inbox row as evidence.

Else every storm of redeliveries would flood the desk.
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
from dlq_admin.tickets.close import close_if_settled
from dlq_admin.tickets.messages import resolve
from messaging import inbox
from messaging.inbox import InboxOutcomeRecord

PAGE: Final = 200
_ITEM_OPEN: Final = sorted(status.value for status in frozenset(ItemStatus) - ITEM_TERMINAL)
_COMPENSATED: Final = "COMPENSATED"

# Open messages with an inbox row that no replay item deals with.
_SETTLED_MEANWHILE: Final = """
SELECT m.id FROM dlq_message m
  JOIN messaging_inbox i
    ON i.consumer_group = m.consumer_group AND i.message_id = m.message_id
 WHERE m.status = 'OPEN' AND m.id > %s
   AND NOT EXISTS (
       SELECT 1 FROM dlq_admin_replay_item r WHERE r.message_id = m.id AND r.status = ANY(%s))
 ORDER BY m.id LIMIT %s
"""


def close_settled(rows: Sequence[DlqMessage]) -> set[int]:
    """End those of these open messages that have an outcome in the inbox; returns their keys.

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
        known = inbox.outcomes(group=group, message_ids=[row.message_id for row in mine])
        for row in mine:
            outcome = known.get(row.message_id)
            if outcome is not None:
                _end(row, outcome)
                ended.add(row.pk)
    return ended


def settle_open(*, after: int = 0) -> tuple[int, int]:
    """End a page of open messages that were settled after their death, in a transaction of its own.

    Returns:
        How many were ended, and the key to go on after (0: start again).

    Cost: one statement over the open messages, then as `close_settled`.
    """
    with transaction.atomic(durable=True):
        with connection.cursor() as cursor:
            cursor.execute(_SETTLED_MEANWHILE, [after, _ITEM_OPEN, PAGE])
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
    return len(ended), ids[-1] if len(ids) == PAGE else 0


def _end(row: DlqMessage, outcome: InboxOutcomeRecord) -> None:
    evidence: dict[str, Any] = {
        "inbox": outcome.outcome.value,
        "reason": outcome.reason,
        "order_id": outcome.order_id,
        "reservation_id": outcome.reservation_id,
        "at": outcome.created_at.isoformat(),
    }
    compensated = outcome.reason == _COMPENSATED
    resolution = Resolution.COMPENSATED if compensated else Resolution.SETTLED
    resolve([row], resolution=resolution, evidence=evidence)
    if row.ticket_id:
        audit.record(
            ticket_id=row.ticket_id,
            kind=TicketEvent.MESSAGE_SETTLED,
            actor=SYSTEM,
            detail={"message_id": row.message_id, "resolution": resolution.value, **evidence},
        )

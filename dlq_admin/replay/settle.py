"""Settling: what became of the items in flight, from the stores alone.

SENDING -> SENT | SEND_UNKNOWN | SEND_FAILED by the outbox row; -> PROCESSED_* | BUSINESS_REJECTED
by the inbox (or the guarded row of a group without one); -> FAILED_AGAIN when a consumer or the
broker gave up on *this* replay. Nothing of it needs the worker that sent.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db import transaction
from django.utils import timezone

import faultpoint
from dlq_admin.models.replay import ReplayItem
from dlq_admin.replay.moves import move_items, tell_item
from dlq_admin.replay.send import MAX_TRIES, resend_item
from dlq_admin.states import (
    BATCH_SENDS,
    ITEM_IN_FLIGHT,
    ITEM_PROCESSED,
    BatchStatus,
    ItemStatus,
)
from messaging import inbox, quarantine, replays
from messaging.inbox import InboxOutcomeRecord
from messaging.metrics import DLQ_REPLAY
from messaging.quarantine import OUTBOX_GROUP
from messaging.replays import OutboxKey, SendState
from messaging.topology import GROUPS
from orders.dead_letters import effect_is_there

LIMIT: Final = 500
_IN_FLIGHT: Final = sorted(status.value for status in ITEM_IN_FLIGHT)
_HAS_INBOX: Final = frozenset(group.name for group in GROUPS if group.has_inbox)
_BY_OUTCOME: Final = {
    "CREATED": ItemStatus.PROCESSED_OK,
    "APPLIED": ItemStatus.PROCESSED_OK,
    "REJECTED": ItemStatus.BUSINESS_REJECTED,
    "STALE_NOOP": ItemStatus.PROCESSED_IDEMPOTENT,
}


def settle(*, batch_id: int | None = None) -> int:
    """Settle what is in flight, of one batch or of all; returns how many items moved.

    Cost: about five statements a group of items, one transaction; a resend is a transaction each.
    """
    moved = 0
    resend: list[tuple[int, ItemStatus]] = []
    with transaction.atomic(durable=True):
        items = list(
            ReplayItem.objects.select_for_update(of=("self",), skip_locked=True)
            .select_related("batch", "message")
            .filter(status__in=_IN_FLIGHT, **({"batch_id": batch_id} if batch_id else {}))
            .order_by("pk")[:LIMIT]
        )
        by_group: dict[str, list[ReplayItem]] = {}
        for item in items:
            by_group.setdefault(item.batch.consumer_group, []).append(item)
        for group, members in by_group.items():
            moved += _settle_group(group, members, resend)
        faultpoint.hit("replay.before_settle")
    for pk, before in resend:
        moved += resend_item(pk, before=before) is not None
    return moved


def _settle_group(
    group: str, items: Sequence[ReplayItem], resend: list[tuple[int, ItemStatus]]
) -> int:
    sent = replays.states(
        [
            OutboxKey(id=item.outbox_id, created_at=item.outbox_created_at)
            for item in items
            if item.outbox_id is not None and item.outbox_created_at is not None
        ]
    )
    ids = [item.message.message_id for item in items]
    known = inbox.outcomes(group=group, message_ids=ids) if group in _HAS_INBOX else {}
    died = replays.died_again(
        group=group, replays={item.message.message_id: item.replay_id for item in items}
    )
    now = timezone.now()
    moved = 0
    for item in items:
        state = sent.get(item.outbox_id or 0)
        status = _publish_state(item, state)
        known_of_it = known.get(item.message.message_id)
        outcome = _outcome(item, group=group, known=known_of_it, status=status)
        if outcome is not None:
            to, why = outcome
        elif item.replay_id in died:
            to, why = ItemStatus.FAILED_AGAIN, died[item.replay_id]
        else:
            to, why = _wait(item, status, state, now, resend)
        moved += _move(item, to=to, why=why)
    return moved


def _publish_state(item: ReplayItem, state: SendState | None) -> ItemStatus:
    """Say where the item is on its way to the broker."""
    status = ItemStatus(item.status)
    if status is not ItemStatus.SENDING:
        return status
    if state is None:
        return ItemStatus.SEND_UNKNOWN  # its row's day was dropped: nobody can tell any more
    return {
        "DUE": ItemStatus.SENDING,
        "SENT": ItemStatus.SENT,
        "UNKNOWN": ItemStatus.SEND_UNKNOWN,
        "FAILED": ItemStatus.SEND_FAILED,
    }[state.state]


def _outcome(
    item: ReplayItem,
    *,
    group: str,
    known: InboxOutcomeRecord | None,
    status: ItemStatus,
) -> tuple[ItemStatus, str] | None:
    """Return what the stores say of the effect; None while they say nothing.

    An effect that was there before the replay counts only once the replay itself was published.
    """
    published = status is ItemStatus.SENT
    if group == OUTBOX_GROUP:
        return (ItemStatus.PROCESSED_OK, "PUBLISHED") if published else None
    if known is not None:
        new = item.verdict != "NOOP" and (
            item.claimed_at is None or known.created_at >= item.claimed_at
        )
        if new:
            return _BY_OUTCOME[known.outcome.value], known.reason
        if published:
            return ItemStatus.PROCESSED_IDEMPOTENT, f"{known.outcome} {known.reason}".strip()
        return None
    if published and effect_is_there(group=group, body=bytes(item.message.body)):
        return ItemStatus.PROCESSED_OK, "EFFECT_THERE"
    return None


def _wait(
    item: ReplayItem,
    status: ItemStatus,
    state: SendState | None,
    now: datetime,
    resend: list[tuple[int, ItemStatus]],
) -> tuple[ItemStatus, str]:
    """Nothing is known: wait, send once more, or give up."""
    if status is not ItemStatus(item.status):
        return status, state.error if state else "NO_OUTBOX_ROW"
    age = now - item.changed_at
    if status is ItemStatus.SENT and age > timedelta(seconds=settings.SECKILL_REPLAY_OUTCOME_S):
        return ItemStatus.SEND_UNKNOWN, "NO_OUTCOME"
    waits = status in (ItemStatus.SEND_UNKNOWN, ItemStatus.SEND_FAILED)
    if not waits or age <= timedelta(seconds=settings.SECKILL_INVISIBLE_S):
        return status, item.status_reason
    batch_status = BatchStatus(item.batch.status)
    if item.send_tries >= MAX_TRIES or batch_status not in (*BATCH_SENDS, BatchStatus.PAUSED):
        return ItemStatus.FAILED_AGAIN, f"{status} after {item.send_tries} sends"
    if batch_status in BATCH_SENDS:
        resend.append((item.pk, status))
    return status, item.status_reason


def _move(item: ReplayItem, *, to: ItemStatus, why: str) -> int:
    before, message_id = ItemStatus(item.status), item.message.message_id
    if to is before:
        return 0
    if not move_items([item.pk], before=before, to=to, reason=why):
        return 0
    if to in ITEM_PROCESSED:
        quarantine.resolve(
            group=item.batch.consumer_group, message_ids=[message_id], resolution="REPLAYED"
        )
    if to in ITEM_PROCESSED or to is ItemStatus.FAILED_AGAIN:
        DLQ_REPLAY.labels(to.value).inc()
        tell_item(
            item,
            ticket_id=item.batch.ticket_id,
            to=to,
            message_id=message_id,
            reason=why,
        )
    return 1

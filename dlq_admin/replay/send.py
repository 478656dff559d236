"""Sending: claim a few items, judge each again under lock, write its outbox row.

    APPROVED -> CLAIMED (committed) -> [lock, judge again] -> SENDING + outbox row  (one commit)
                                                           -> STALE when anything differs

A crash between the two commits leaves CLAIMED items, which the next round takes up again; a crash
after the second one leaves an outbox row, which is sent whoever lives. Never in a web request.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import structlog
from django.db import connection, transaction
from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone

import faultpoint
from dlq_admin.dry_run import dead as dead_messages
from dlq_admin.dry_run.dead import Dead
from dlq_admin.dry_run.examine import Examination, examine, gate_names
from dlq_admin.models.replay import ReplayBatch, ReplayItem
from dlq_admin.replay.moves import move_items, tell_item
from dlq_admin.states import BATCH_SENDS, Disposition, ItemStatus
from messaging import quarantine, replays
from messaging.envelope import to_epoch_ms
from messaging.metrics import DLQ_REPLAY
from messaging.outbox import LANE_EVENTS, OutboxMessage
from messaging.quarantine import OUTBOX_GROUP
from messaging.sqlstate import ErrorClass, classify, reason_of
from messaging.topology import TopicType, topic_spec
from orders.compensate import reject_compensated, release_now
from orders.errors import TicketRefused

if TYPE_CHECKING:
    from django.db.models import QuerySet

log = structlog.get_logger(__name__)

MAX_TRIES: Final = 3
_SENDS: Final = [status.value for status in BATCH_SENDS]


def claim(batch: ReplayBatch, *, limit: int) -> list[int]:
    """Claim approved items, oldest first, in a transaction of its own; returns those to work on.

    What an earlier round (or a worker that crashed) had claimed comes first.
    """
    with transaction.atomic(durable=True):
        if not _locked_sender(batch.pk):
            return []
        waiting = ReplayItem.objects.filter(batch_id=batch.pk)
        claimed = _pks(waiting.filter(status=ItemStatus.CLAIMED), limit)
        approved = waiting.filter(status=ItemStatus.APPROVED)
        fresh = _pks(approved, max(0, limit - len(claimed)))
        if fresh:
            move_items(fresh, before=ItemStatus.APPROVED, to=ItemStatus.CLAIMED, claimed_at=Now())
    faultpoint.hit("replay.after_claim")
    return claimed + fresh


def _pks(items: "QuerySet[ReplayItem]", limit: int) -> list[int]:
    return list(items.order_by("position").values_list("pk", flat=True)[:limit])


def send_item(pk: int) -> ItemStatus | None:
    """Do what was approved with one claimed item, if everything still is as it was approved.

    Returns:
        Its new state; None when its batch does not send any more, or it is not claimed any more.

    Cost: about eight statements in one transaction; with COMPENSATE the release at the gate.
    """
    release: list[str] = []
    with transaction.atomic(durable=True):
        item = _lock_item(pk, status=ItemStatus.CLAIMED)
        if item is None:
            return None
        batch = item.batch
        dead, seen = _examine(item)
        if seen.item_hash != item.item_hash:
            to = ItemStatus.STALE
            why = f"{seen.judgement.verdict}: {seen.judgement.reason}"
            move_items([pk], before=ItemStatus.CLAIMED, to=to, reason=why)
            _tell(item, dead, to, why)
        elif batch.disposition == Disposition.COMPENSATE:
            to, release = _compensate(item, dead, seen)
        elif batch.disposition == Disposition.DISCARD:
            to = ItemStatus.DISCARDED
            quarantine.resolve(
                group=dead.group, message_ids=[dead.message_id], resolution="DISCARDED"
            )
            move_items([pk], before=ItemStatus.CLAIMED, to=to)
            _tell(item, dead, to, "")
        else:
            to = ItemStatus.SENDING
            _write(item, dead, before=ItemStatus.CLAIMED)
        faultpoint.hit("replay.before_commit")
    faultpoint.hit("replay.after_commit")
    if to is not ItemStatus.SENDING:
        DLQ_REPLAY.labels(to.value).inc()
    if release:
        release_now(release)
    return to


def resend_item(pk: int, *, before: ItemStatus) -> ItemStatus | None:
    """Send an item's message once more, if its batch still sends and a replay still makes sense.

    Returns:
        SENDING or FAILED_AGAIN; None when nothing may be sent now.
    """
    with transaction.atomic(durable=True):
        item = _lock_item(pk, status=before)
        if item is None:
            return None
        dead, seen = _examine(item)
        if seen.judgement.verdict.value != item.verdict and not seen.versions["inbox"]:
            why = f"{seen.judgement.verdict}: {seen.judgement.reason}"
            move_items([pk], before=before, to=ItemStatus.FAILED_AGAIN, reason=why)
            _tell(item, dead, ItemStatus.FAILED_AGAIN, why)
            return ItemStatus.FAILED_AGAIN
        _write(item, dead, before=before)
        faultpoint.hit("replay.before_commit")
    return ItemStatus.SENDING


def _locked_sender(batch_id: int) -> bool:
    """Hold the batch's row while it sends; False when it does not, or another worker holds it."""
    return (
        ReplayBatch.objects.select_for_update(skip_locked=True)
        .filter(pk=batch_id, status__in=_SENDS)
        .exists()
    )


def _lock_item(pk: int, *, status: ItemStatus) -> ReplayItem | None:
    """Lock an item whose batch sends; the batch's row is shared, so that a pause waits for us."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT i.id FROM dlq_admin_replay_item i"
            " JOIN dlq_admin_replay_batch b ON b.id = i.batch_id"
            " WHERE i.id = %s AND i.status = %s AND b.status = ANY(%s)"
            " FOR UPDATE OF i SKIP LOCKED FOR SHARE OF b",
            [pk, status.value, _SENDS],
        )
        if cursor.fetchone() is None:
            return None
    return ReplayItem.objects.select_related("batch").get(pk=pk)


def _examine(item: ReplayItem) -> tuple[Dead, Examination]:
    batch = item.batch
    message_pk: int = item.message_id
    dead = dead_messages.load([message_pk], lock=True)[message_pk]
    if item.body is not None:
        dead = dead.with_body(bytes(item.body))
    # The approval wrote the extension row: from here on the row decides, not the wish.
    seen = examine(
        dead,
        disposition=Disposition(batch.disposition),
        extension_s=0,
        names=gate_names(dead, extension_s=0),
        lock=True,
    )
    return dead, seen


def _compensate(item: ReplayItem, dead: Dead, seen: Examination) -> tuple[ItemStatus, list[str]]:
    try:
        with transaction.atomic():
            rejected = reject_compensated(dead.reservation_id, now=seen.now)
    except TicketRefused as error:
        move_items([item.pk], before=ItemStatus.CLAIMED, to=ItemStatus.STALE, reason=str(error))
        _tell(item, dead, ItemStatus.STALE, str(error))
        return ItemStatus.STALE, []
    move_items([item.pk], before=ItemStatus.CLAIMED, to=ItemStatus.COMPENSATED)
    _tell(item, dead, ItemStatus.COMPENSATED, "")
    return ItemStatus.COMPENSATED, rejected


def _write(item: ReplayItem, dead: Dead, *, before: ItemStatus) -> None:
    """Write the outbox row: the original message id, one attempt, for one group only."""
    spec = topic_spec(dead.topic)
    delayed = spec.type is TopicType.DELAY
    target = "" if dead.group == OUTBOX_GROUP else dead.group
    carried = replays.properties(
        replay_id=item.replay_id, replay_count=item.replay_count, target_group=target
    )
    if dead.traceparent:
        carried["traceparent"] = dead.traceparent
    keys = replays.add(
        [
            OutboxMessage(
                topic=dead.topic,
                tag=dead.tag or spec.tags[0],
                event_id=dead.message_id,
                keys=dead.keys or tuple(filter(None, [dead.reservation_id])),
                body=dead.body,
                lane=LANE_EVENTS,
                deliver_at_ms=to_epoch_ms(timezone.now()) + 1_000 if delayed else None,
                properties=carried,
                max_attempts=1,
                replay_id=item.replay_id,
            )
        ]
    )
    key = keys[item.replay_id]
    moved = move_items(
        [item.pk],
        before=before,
        to=ItemStatus.SENDING,
        send_tries=F("send_tries") + 1,
        outbox_id=key.id,
        outbox_created_at=key.created_at,
        sent_at=Now(),
    )
    if moved:
        _tell(item, dead, ItemStatus.SENDING, "")


def _tell(item: ReplayItem, dead: Dead, to: ItemStatus, why: str) -> None:
    tell_item(
        item,
        ticket_id=item.batch.ticket_id,
        to=to,
        message_id=dead.message_id,
        replay_count=item.replay_count,
        reason=why,
    )


def send_items(pks: Sequence[int]) -> int:
    """Send claimed items, each in its own transaction; returns how many were settled.

    A poison item ends STALE and blocks nobody; a store that is away ends the round.

    Raises:
        django.db.Error, GateUnavailable: a store is away; the rest stays CLAIMED.
    """
    done = 0
    for pk in pks:
        try:
            done += send_item(pk) is not None
        except Exception as error:
            if classify(error) in (ErrorClass.TRANSIENT, ErrorClass.CONTENTION):
                raise
            log.exception("replay_item_failed", item=pk)
            move_items(
                [pk], before=ItemStatus.CLAIMED, to=ItemStatus.STALE, reason=reason_of(error)
            )
            done += 1
    return done

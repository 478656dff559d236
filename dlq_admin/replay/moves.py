"""Guarded transitions of batches and items: an UPDATE that names the former state, and an event."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.db.models.functions import Now

from dlq_admin.audit import record
from dlq_admin.audit.record import SYSTEM
from dlq_admin.models.replay import ReplayBatch, ReplayItem
from dlq_admin.replay.refusals import StaleState
from dlq_admin.states import (
    BATCH_ALLOWED,
    BATCH_ENDED,
    ITEM_TERMINAL,
    BatchStatus,
    ItemStatus,
)

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def move_batch(
    batch: ReplayBatch, *, to: BatchStatus, actor: "User | str", reason: str = "", **fields: Any
) -> None:
    """Move a batch inside the caller's transaction; `batch` is what the caller read (and locked).

    Raises:
        StaleState: it is in another state by now, or this is no legal jump.
    """
    former = BatchStatus(batch.status)
    if to not in BATCH_ALLOWED[former]:
        raise StaleState(f"batch {batch.pk} is {former}")
    if to in BATCH_ENDED:
        fields["finished_at"] = Now()
    moved = ReplayBatch.objects.filter(pk=batch.pk, status=former.value).update(
        status=to.value, status_reason=reason, **fields
    )
    if moved != 1:
        raise StaleState(f"batch {batch.pk} is not {former} any more")
    batch.status = to.value
    batch.status_reason = reason
    record(
        ticket_id=batch.ticket_id,
        kind=f"BATCH_{to}",
        actor=actor,
        detail={
            "batch": batch.pk,
            "from": former.value,
            "plan_hash": batch.plan_hash,
            "reason": reason,
        },
    )


def move_items(
    pks: Sequence[int], *, before: ItemStatus, to: ItemStatus, reason: str = "", **fields: Any
) -> int:
    """Move items that are still in the former state; returns how many were. One statement."""
    if to in ITEM_TERMINAL:
        fields["ended_at"] = Now()
    return ReplayItem.objects.filter(pk__in=list(pks), status=before.value).update(
        status=to.value, status_reason=reason[:200], **fields
    )


def move_all(batch: ReplayBatch, *, before: Sequence[ItemStatus], to: ItemStatus) -> int:
    """Move every item of a batch that is in one of these states. One statement."""
    fields: dict[str, Any] = {"ended_at": Now()} if to in ITEM_TERMINAL else {}
    return ReplayItem.objects.filter(
        batch_id=batch.pk, status__in=[status.value for status in before]
    ).update(status=to.value, **fields)


def tell_item(
    item: ReplayItem, *, ticket_id: int, to: ItemStatus, message_id: str, **detail: Any
) -> None:
    """Tell the audit trail what became of an item, inside the transaction that moved it."""
    record(
        ticket_id=ticket_id,
        kind=f"ITEM_{to}",
        actor=SYSTEM,
        detail={
            "batch": item.batch_id,
            "replay_id": item.replay_id,
            "message_id": message_id,
            **detail,
        },
    )


def lock_batch(batch_id: int) -> ReplayBatch:
    """Read a batch and hold its row until the transaction ends.

    Raises:
        StaleState: there is no such batch.
    """
    batch = ReplayBatch.objects.select_for_update().filter(pk=batch_id).first()
    if batch is None:
        raise StaleState(f"there is no batch {batch_id}")
    return batch

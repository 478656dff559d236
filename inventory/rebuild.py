"""PostgreSQL's half of a rebuild: numbered runs, noted losses, and the ground a run stands on.

A run's number and a noted loss stand here before anything is written to Redis; every later step
carries the number and is refused after a newer run began. `orders/rebuild/` does the steps.
Source: docs/protocol.md, "Operators and rebuild".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import F, Min
from django.db.models.functions import Now

from inventory import stock
from inventory.errors import OperationRefused, RebuildOvertaken
from inventory.models import Activity, GateMark, GateOperation, RebuildRun, Sku
from inventory.readiness import MAX_CLOCK_SKEW_MS
from inventory.selectors import ActivityRecord, activity_record
from inventory.states import ActivityStatus, OperationKind, OperationStatus, RebuildStatus

PERMISSION: Final = "inventory.rebuild_gate"


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One rebuild run: what each of its steps carries."""

    activity_id: int
    number: int
    loss_noted: bool
    forced: bool
    sku_ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ground:
    """What a run's transaction stands on; the stock rows are locked until it ends.

    `mark` is what the last script writes, None in a run that began without a noted loss.
    """

    record: ActivityRecord
    available: Mapping[int, int]
    epochs: Mapping[int, int]
    mark: int | None
    topped_up: tuple[str, ...]


def begin_run(
    *,
    activity_id: int,
    note_loss: bool,
    forced: bool = False,
    reason: str,
    user: User | None = None,
    at_least: int = 0,
) -> Run:
    """Begin a run with the next number; noting a loss and its run are one transaction.

    Args:
        activity_id: a sale that was opened once and is not SETTLED.
        note_loss: Redis lost data (or came back as an older copy).
        forced: the run does not wait for the newest possible valid_until.
        reason: for the audit, not empty.
        user: who asks; None is the system itself.
        at_least: the number is not smaller (the gate has seen one before).

    Raises:
        PermissionDenied: the user may not rebuild gates.
        OperationRefused: no such sale, never opened, SETTLED, or no reason.
    """
    if user is not None and not user.has_perm(PERMISSION):
        raise PermissionDenied(PERMISSION)
    if not reason.strip():
        raise OperationRefused("a reason is needed: it is the audit record")
    with transaction.atomic():
        activity = _lock(activity_id)
        if activity.opened_at is None or activity.status == ActivityStatus.SETTLED:
            raise OperationRefused(
                f"activity {activity_id} is {activity.status}: only a sale that was opened and is"
                " not settled has a gate to rebuild"
            )
        loss_noted = note_loss or activity.loss_noted_at is not None
        number = max(activity.rebuild_run + 1, at_least)
        changes: dict[str, Any] = {"rebuild_run": number, "rebuild_unfinished": True}
        if loss_noted and activity.loss_noted_at is None:
            changes["loss_noted_at"] = Now()
        Activity.objects.filter(pk=activity_id).update(**changes)
        RebuildRun.objects.filter(activity_id=activity_id, status=RebuildStatus.RUNNING).update(
            status=RebuildStatus.OVERTAKEN, ended_at=Now()
        )
        RebuildRun.objects.create(
            activity_id=activity_id,
            number=number,
            loss_noted=loss_noted,
            forced=forced,
            reason=reason.strip(),
            requested_by=user,
        )
        sku_ids = tuple(
            Sku.objects.filter(activity_id=activity_id).order_by("pk").values_list("pk", flat=True)
        )
    return Run(
        activity_id=activity_id,
        number=number,
        loss_noted=loss_noted,
        forced=forced,
        sku_ids=sku_ids,
    )


def note_new_loss(*, activity_id: int, reason: str, at_least: int = 0) -> Run | None:
    """Note a loss that nobody has noted yet, and begin its run; None when it was noted before.

    Raises:
        OperationRefused: as `begin_run`.
    """
    with transaction.atomic():
        if _lock(activity_id).loss_noted_at is not None:
            return None
        return begin_run(activity_id=activity_id, note_loss=True, reason=reason, at_least=at_least)


def newest_run(activity_id: int) -> Run | None:
    """Return the newest run of a sale while it is unfinished, else None. Two statements."""
    row = (
        RebuildRun.objects.filter(
            activity_id=activity_id,
            number=F("activity__rebuild_run"),
            activity__rebuild_unfinished=True,
        )
        .order_by("-number")
        .first()
    )
    if row is None:
        return None
    return Run(
        activity_id=activity_id,
        number=row.number,
        loss_noted=row.loss_noted,
        forced=row.forced,
        sku_ids=tuple(
            Sku.objects.filter(activity_id=activity_id).order_by("pk").values_list("pk", flat=True)
        ),
    )


def note_closed(run: Run) -> datetime | None:
    """Note that the gate is closed by this run.

    Returns:
        After a loss: the instant past which no reservation that Redis lost can still become an
        order. It counts from the first close after the loss, the gate was not open since.
    """
    RebuildRun.objects.filter(
        activity_id=run.activity_id, number=run.number, closed_at__isnull=True
    ).update(closed_at=Now())
    if not run.loss_noted:
        return None
    closed_at = RebuildRun.objects.filter(
        activity_id=run.activity_id, began_at__gte=F("activity__loss_noted_at")
    ).aggregate(first=Min("closed_at"))["first"]
    if closed_at is None:  # the loss is not noted any more: a newer run has finished
        raise RebuildOvertaken(f"run {run.number} of activity {run.activity_id} was overtaken")
    longest = timedelta(seconds=_longest_validity_s(run.activity_id))
    valid_until: datetime = closed_at + longest + timedelta(milliseconds=MAX_CLOCK_SKEW_MS)
    return valid_until


def take_ground(run: Run) -> Ground:
    """Lock the stock, settle what the rebuild counts, raise the epoch; inside the transaction.

    The caller's transaction is REPEATABLE READ and this is its first statement: whatever was
    booked before is in its snapshot, whatever comes later waits for the locks (40001: again).

    Raises:
        RebuildOvertaken: a newer run began.

    Cost: seven statements; every stock row of the sale stays locked until COMMIT.
    """
    available = stock.lock(run.sku_ids)
    activity = Activity.objects.get(pk=run.activity_id)
    if activity.rebuild_run != run.number:
        raise RebuildOvertaken(f"run {run.number} of activity {run.activity_id} was overtaken")
    # Booked in the transaction that wrote their rows: they are part of `available`.
    booked = GateOperation.objects.filter(
        activity_id=run.activity_id,
        kind=OperationKind.TOP_UP,
        status=OperationStatus.REQUESTED,
    )
    topped_up = tuple(booked.order_by("pk").values_list("pk", flat=True))
    booked.update(
        status=OperationStatus.DONE,
        done_at=Now(),
        units_done=F("units"),
        note=f"counted by rebuild {run.number}",
    )
    Sku.objects.filter(activity_id=run.activity_id).update(epoch=F("epoch") + 1)
    mark = None
    if run.loss_noted:
        # By two, so that a step of the mark that is still on its way meets another number.
        GateMark.objects.get_or_create(activity_id=run.activity_id)
        GateMark.objects.filter(pk=run.activity_id).update(number=F("number") + 2)
        mark = GateMark.objects.get(pk=run.activity_id).number - 1
    record = activity_record(run.activity_id)
    assert record is not None  # noqa: S101 - read above
    return Ground(
        record=record,
        available=available,
        epochs={sku.sku_id: sku.epoch for sku in record.skus},
        mark=mark,
        topped_up=topped_up,
    )


def note_found(run: Run, found: Mapping[str, Any]) -> None:
    """Keep what the run's transaction found and ended, inside that transaction."""
    RebuildRun.objects.filter(activity_id=run.activity_id, number=run.number).update(
        found=dict(found)
    )


def finish_run(run: Run) -> bool:
    """End the run and clear the note of the loss; False when a newer run began: nothing is cleared.

    Call it only after the gate is there again.
    """
    with transaction.atomic():
        cleared = Activity.objects.filter(
            pk=run.activity_id, rebuild_run=run.number, rebuild_unfinished=True
        ).update(rebuild_unfinished=False, loss_noted_at=None)
        if cleared:
            RebuildRun.objects.filter(
                activity_id=run.activity_id, number=run.number, status=RebuildStatus.RUNNING
            ).update(status=RebuildStatus.DONE, ended_at=Now())
    return bool(cleared)


def next_mark(activity_id: int) -> int:
    """Return the number that the moving mark takes next. One statement, two the first time."""
    return GateMark.objects.get_or_create(activity_id=activity_id)[0].number


def mark_moved(activity_id: int, number: int) -> bool:
    """Note that Redis holds `number`; False when another scanner (or a rebuild) was faster."""
    return bool(GateMark.objects.filter(pk=activity_id, number=number).update(number=number + 1))


def lost_since(activity_id: int, instant: datetime) -> bool:
    """Tell whether a loss was noted after an instant, rebuilt or not. One statement."""
    return RebuildRun.objects.filter(
        activity_id=activity_id, loss_noted=True, began_at__gte=instant
    ).exists()


def _lock(activity_id: int) -> Activity:
    activity = Activity.objects.select_for_update(no_key=True).filter(pk=activity_id).first()
    if activity is None:
        raise OperationRefused(f"there is no activity {activity_id}")
    return activity


def _longest_validity_s(activity_id: int) -> int:
    """Return the longest validity that the sale ever had: edits keep what was before."""
    longest = Activity.objects.values_list("validity_s", flat=True).get(pk=activity_id)
    for payload in GateOperation.objects.filter(
        activity_id=activity_id, kind=OperationKind.EDIT
    ).values_list("payload", flat=True):
        gates = [gate.get("validity_ms", 0) // 1000 for gate in payload.get("gates", {}).values()]
        longest = max(longest, payload.get("validity_before_s", 0), *gates)
    return longest

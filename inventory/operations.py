"""Operators' changes of a sale: each is a row first, then a change at the gate.

A request writes its row (and what PostgreSQL decides with it: status, window, limits, a top-up's
units) in one transaction, then drives the row at once; a crash or an unreachable gate in between is
made up by the scanner's job (`drive`). Repeating a request with its operation id changes nothing.
Source: docs/protocol.md, "Operators' changes".
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, NotRequired, TypedDict, Unpack

from django.contrib.auth.models import User
from django.db.models import F
from django.db.models.functions import Now

from inventory import stock
from inventory.errors import OperationRefused
from inventory.gate_status import report_gate
from inventory.models import Activity, GateOperation, Sku, Stock
from inventory.operation_driver import (
    WaitingOperation,
    drive,
    drive_all,
    drive_operation,
    waiting_operations,
)
from inventory.operation_requests import (
    PERMISSIONS,
    Change,
    move,
    new_operation_id,
    save,
    write_and_drive,
)
from inventory.selectors import activity_record
from inventory.states import ActivityStatus, LedgerKind, OperationKind, OperationStatus
from inventory.warm_up import warm_up

__all__ = [
    "PERMISSIONS",
    "EditWish",
    "WaitingOperation",
    "drive",
    "drive_all",
    "drive_operation",
    "new_operation_id",
    "request_close",
    "request_cut",
    "request_edit",
    "request_open",
    "request_pause",
    "request_resume",
    "request_stop",
    "request_top_up",
    "waiting_operations",
    "warm_up",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class EditWish:
    """New values of a sale's window and limits; None leaves a value as it is."""

    starts_at: datetime | None = None
    ends_at: datetime | None = None
    validity_s: int | None = None
    max_open: int | None = None
    max_pending: int | None = None
    limit_per_user: Mapping[int, int] = field(default_factory=dict)  # SKU → limit


class Ask(TypedDict):
    """What every request says.

    Args:
        activity_id: the sale.
        operation_id: the caller's id of this request, drawn when missing or empty.
        reason: for the audit.
        user: who asks; None is the system itself.

    Every request returns the operation's id, whose row tells whether the gate has followed yet, and
    raises OperationRefused (the state of the sale or of its gate does not allow it) or
    PermissionDenied.
    """

    activity_id: int
    operation_id: NotRequired[str]
    reason: str
    user: NotRequired[User | None]


def request_open(**ask: Unpack[Ask]) -> str:
    """Open a warm or closed sale. Refused while its gate is lost or being rebuilt."""
    return _request_opening(
        OperationKind.OPEN, frozenset({ActivityStatus.WARM, ActivityStatus.CLOSED}), ask
    )


def request_resume(**ask: Unpack[Ask]) -> str:
    """Open a paused sale again."""
    return _request_opening(OperationKind.RESUME, frozenset({ActivityStatus.PAUSED}), ask)


def request_pause(**ask: Unpack[Ask]) -> str:
    """Stop new reservations for a while."""
    return write_and_drive(kind=OperationKind.PAUSE, change=_to(ActivityStatus.PAUSED), **ask)


def request_close(**ask: Unpack[Ask]) -> str:
    """End the sale: no new reservations."""
    return write_and_drive(kind=OperationKind.CLOSE, change=_to(ActivityStatus.CLOSED), **ask)


def request_stop(*, version_above: int = 0, **ask: Unpack[Ask]) -> str:
    """Emergency stop: in any status after DRAFT, also when the sale is CLOSED already.

    PostgreSQL's status and the row are one transaction; the gate is stopped right after it, by the
    scanner at the latest.

    Args:
        version_above: the sale's version becomes higher than this, which its gate knows already.
        ask: see `Ask`.
    """

    def change(activity: Activity, _: str) -> dict[str, Any]:
        if activity.status in {ActivityStatus.DRAFT, ActivityStatus.SETTLED}:
            raise OperationRefused(f"activity {activity.pk} is {activity.status}: nothing to stop")
        activity.version = max(activity.version, version_above)
        if activity.status == ActivityStatus.CLOSED:
            save(activity)
        else:
            move(activity, ActivityStatus.CLOSED)
        return {}

    return write_and_drive(kind=OperationKind.STOP, change=change, **ask)


def request_top_up(*, sku_id: int, units: int, **ask: Unpack[Ask]) -> str:
    """Put more units on sale: booked in PostgreSQL with the row, then given to the gate.

    Args:
        sku_id: one of the sale's SKUs.
        units: how many, ≥ 1.
        ask: see `Ask`.
    """

    def change(activity: Activity, operation: str) -> dict[str, Any]:
        _require_stock(activity, sku_id, units)
        stock.lock([sku_id])
        Stock.objects.filter(pk=sku_id).update(
            available=F("available") + units, topped_up=F("topped_up") + units
        )
        stock.book(
            [
                stock.LedgerLine(
                    activity_id=activity.pk,
                    sku_id=sku_id,
                    kind=LedgerKind.TOP_UP,
                    source_id=operation,
                    delta=units,
                    units=units,
                )
            ]
        )
        save(activity)
        return {}

    return write_and_drive(
        kind=OperationKind.TOP_UP, change=change, sku_id=sku_id, units=units, **ask
    )


def request_cut(*, sku_id: int, units: int, **ask: Unpack[Ask]) -> str:
    """Take unsold units off sale: from the gate first, then PostgreSQL books what it really took.

    Arguments of `request_top_up`; `units_done` of the row says how many it was.
    """

    def change(activity: Activity, _: str) -> dict[str, Any]:
        _require_stock(activity, sku_id, units)
        save(activity)
        return {}

    return write_and_drive(kind=OperationKind.CUT, change=change, sku_id=sku_id, units=units, **ask)


def request_edit(*, wish: EditWish, expected_version: int | None = None, **ask: Unpack[Ask]) -> str:
    """Change window and limits; reservations in flight keep their valid_until.

    Args:
        wish: the values to change.
        expected_version: version of the sale that the operator saw; refused when it has moved on.
        ask: see `Ask`.
    """

    def change(activity: Activity, _: str) -> dict[str, Any]:
        if activity.status in {ActivityStatus.DRAFT, ActivityStatus.SETTLED}:
            raise OperationRefused(f"activity {activity.pk} is {activity.status}: not a gate edit")
        if expected_version is not None and expected_version != activity.version:
            raise OperationRefused(
                f"the sale changed meanwhile (version {activity.version}, the form showed "
                f"{expected_version}): look again and repeat"
            )
        validity_before_s = activity.validity_s
        for name in ("starts_at", "ends_at", "validity_s", "max_open", "max_pending"):
            value = getattr(wish, name)
            if value is not None:
                setattr(activity, name, value)
        if activity.ends_at <= activity.starts_at:
            raise OperationRefused("the window must end after it starts")
        if min(activity.validity_s, activity.max_open, activity.max_pending) < 1:
            raise OperationRefused("validity, max_open and max_pending must be at least 1")
        for sku_id, limit in wish.limit_per_user.items():
            if limit < 1 or not Sku.objects.filter(pk=sku_id, activity=activity).update(
                limit_per_user=limit
            ):
                raise OperationRefused(f"no limit {limit} for SKU {sku_id} of this sale")
        save(activity)
        record = activity_record(activity.pk)
        assert record is not None  # noqa: S101 - locked above
        return {
            "gates": {str(sku.sku_id): asdict(record.gate_config(sku)) for sku in record.skus},
            "validity_before_s": validity_before_s,  # a rebuild waits for the longest one
        }

    return write_and_drive(kind=OperationKind.EDIT, change=change, **ask)


def _to(status: ActivityStatus) -> Change:
    def change(activity: Activity, _: str) -> dict[str, Any]:
        move(activity, status)
        return {}

    return change


def _request_opening(
    kind: OperationKind, from_statuses: frozenset[ActivityStatus], ask: Ask
) -> str:
    activity_id, operation_id = ask["activity_id"], ask.get("operation_id", "")
    record = activity_record(activity_id)
    if record is not None and not GateOperation.objects.filter(pk=operation_id).exists():
        report = report_gate(record)
        if report.condition in {"GATE_LOST", "NOT_LOADED", "UNREACHABLE", "REBUILDING"}:
            raise OperationRefused(f"the gate of activity {activity_id} is {report.condition}")
        if any(state and state.rebuild_run for state in report.gates):
            raise OperationRefused(f"the gate of activity {activity_id} is being rebuilt")

    def change(activity: Activity, _: str) -> dict[str, Any]:
        if activity.status not in from_statuses:
            raise OperationRefused(f"activity {activity.pk} is {activity.status}")
        if activity.voided_at is not None:
            raise OperationRefused(f"activity {activity.pk} was declared void")
        if activity.rebuild_unfinished or activity.loss_noted_at is not None:
            raise OperationRefused(
                f"activity {activity.pk} is being rebuilt: only rebuild_gate opens it now"
            )
        if GateOperation.objects.filter(
            activity=activity, kind=OperationKind.WARM_UP, status="REQUESTED"
        ).exists():
            raise OperationRefused(f"activity {activity.pk} is still being warmed up")
        first = activity.opened_at is None
        if first and not _is_loaded(activity):
            raise OperationRefused(
                f"activity {activity.pk} was not warmed up: its last load failed"
            )
        move(activity, ActivityStatus.OPEN)
        if first:
            Activity.objects.filter(pk=activity.pk).update(opened_at=Now())
        return {"first": first}

    return write_and_drive(kind=kind, change=change, **ask)


def _is_loaded(activity: Activity) -> bool:
    """Return whether the newest warm-up has loaded the gate: else it may be another sale's."""
    newest = (
        GateOperation.objects.filter(activity=activity, kind=OperationKind.WARM_UP)
        .order_by("-requested_at", "-pk")
        .first()
    )
    return newest is not None and newest.status == OperationStatus.DONE


def _require_stock(activity: Activity, sku_id: int, units: int) -> None:
    if units < 1:
        raise OperationRefused("units must be at least 1")
    if activity.status in {ActivityStatus.DRAFT, ActivityStatus.SETTLED}:
        raise OperationRefused(f"activity {activity.pk} is {activity.status}: its stock is fixed")
    if not Stock.objects.filter(pk=sku_id, activity_id=activity.pk).exists():
        raise OperationRefused(f"activity {activity.pk} has no SKU {sku_id}")

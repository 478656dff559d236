"""Operators' changes of a sale: each is a row first, then a change at the gate.

A request writes its row (and what PostgreSQL decides with it: status, window, limits, a top-up's
units) in one transaction, then drives the row at once; a crash or an unreachable gate in between is
made up by the scanner's job (`drive`). Repeating a request with its operation id changes nothing.
Source: docs/protocol.md, "Operators' changes".
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db.models import F
from django.db.models.functions import Now

from inventory import stock
from inventory.errors import OperationRefused
from inventory.gate_status import report_gate
from inventory.models import Activity, GateOperation, Sku, Stock
from inventory.operation_driver import drive, drive_operation
from inventory.operation_requests import (
    PERMISSIONS,
    move,
    new_operation_id,
    save,
    write_and_drive,
)
from inventory.selectors import activity_record
from inventory.states import ActivityStatus, LedgerKind, OperationKind
from inventory.warm_up import warm_up

__all__ = [
    "PERMISSIONS",
    "EditWish",
    "drive",
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


def request_open(
    *, activity_id: int, operation_id: str = "", reason: str, user: User | None = None
) -> str:
    """Open a warm or closed sale. Refused while its gate is lost or being rebuilt.

    Args:
        activity_id: the sale.
        operation_id: the caller's id of this request, drawn when empty.
        reason: for the audit.
        user: who asks; None is the system itself.

    Returns:
        The operation's id; its row tells whether the gate has followed yet.

    Raises:
        OperationRefused: the state of the sale or of its gate does not allow it.
        PermissionDenied: the user may not.
    """
    return _request_opening(
        OperationKind.OPEN,
        frozenset({ActivityStatus.WARM, ActivityStatus.CLOSED}),
        activity_id=activity_id,
        operation_id=operation_id,
        reason=reason,
        user=user,
    )


def request_resume(
    *, activity_id: int, operation_id: str = "", reason: str, user: User | None = None
) -> str:
    """Open a paused sale again; arguments and errors of `request_open`."""
    return _request_opening(
        OperationKind.RESUME,
        frozenset({ActivityStatus.PAUSED}),
        activity_id=activity_id,
        operation_id=operation_id,
        reason=reason,
        user=user,
    )


def request_pause(
    *, activity_id: int, operation_id: str = "", reason: str, user: User | None = None
) -> str:
    """Stop new reservations for a while; arguments and errors of `request_open`."""
    return _request_move(
        OperationKind.PAUSE,
        ActivityStatus.PAUSED,
        activity_id=activity_id,
        operation_id=operation_id,
        reason=reason,
        user=user,
    )


def request_close(
    *, activity_id: int, operation_id: str = "", reason: str, user: User | None = None
) -> str:
    """End the sale: no new reservations; arguments and errors of `request_open`."""
    return _request_move(
        OperationKind.CLOSE,
        ActivityStatus.CLOSED,
        activity_id=activity_id,
        operation_id=operation_id,
        reason=reason,
        user=user,
    )


def request_stop(
    *, activity_id: int, operation_id: str = "", reason: str, user: User | None = None
) -> str:
    """Emergency stop: in any status after DRAFT, also when the sale is CLOSED already.

    PostgreSQL's status and the row are one transaction; the gate is stopped right after it, by the
    scanner at the latest. Arguments and errors of `request_open`.
    """

    def change(activity: Activity, _: str) -> dict[str, Any]:
        if activity.status in {ActivityStatus.DRAFT, ActivityStatus.SETTLED}:
            raise OperationRefused(f"activity {activity.pk} is {activity.status}: nothing to stop")
        if activity.status == ActivityStatus.CLOSED:
            save(activity)
        else:
            move(activity, ActivityStatus.CLOSED)
        return {}

    return write_and_drive(
        kind=OperationKind.STOP,
        activity_id=activity_id,
        operation_id=operation_id,
        reason=reason,
        user=user,
        change=change,
    )


def request_top_up(
    *,
    activity_id: int,
    sku_id: int,
    units: int,
    operation_id: str = "",
    reason: str,
    user: User | None = None,
) -> str:
    """Put more units on sale: booked in PostgreSQL with the row, then given to the gate.

    Args:
        activity_id: the sale.
        sku_id: one of its SKUs.
        units: how many, ≥ 1.
        operation_id: the caller's id of this request, drawn when empty.
        reason: for the audit.
        user: who asks; None is the system itself.
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
        kind=OperationKind.TOP_UP,
        activity_id=activity_id,
        operation_id=operation_id,
        reason=reason,
        user=user,
        change=change,
        sku_id=sku_id,
        units=units,
    )


def request_cut(
    *,
    activity_id: int,
    sku_id: int,
    units: int,
    operation_id: str = "",
    reason: str,
    user: User | None = None,
) -> str:
    """Take unsold units off sale: from the gate first, then PostgreSQL books what it really took.

    Arguments of `request_top_up`; `units_done` of the row says how many it was.
    """

    def change(activity: Activity, _: str) -> dict[str, Any]:
        _require_stock(activity, sku_id, units)
        save(activity)
        return {}

    return write_and_drive(
        kind=OperationKind.CUT,
        activity_id=activity_id,
        operation_id=operation_id,
        reason=reason,
        user=user,
        change=change,
        sku_id=sku_id,
        units=units,
    )


def request_edit(
    *,
    activity_id: int,
    wish: EditWish,
    expected_version: int | None = None,
    operation_id: str = "",
    reason: str,
    user: User | None = None,
) -> str:
    """Change window and limits; reservations in flight keep their valid_until.

    Args:
        activity_id: the sale.
        wish: the values to change.
        expected_version: version of the sale that the operator saw; refused when it has moved on.
        operation_id: the caller's id of this request, drawn when empty.
        reason: for the audit.
        user: who asks; None is the system itself.
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

    return write_and_drive(
        kind=OperationKind.EDIT,
        activity_id=activity_id,
        operation_id=operation_id,
        reason=reason,
        user=user,
        change=change,
    )


def _request_move(
    kind: OperationKind,
    to: ActivityStatus,
    *,
    activity_id: int,
    operation_id: str,
    reason: str,
    user: User | None,
) -> str:
    def change(activity: Activity, _: str) -> dict[str, Any]:
        move(activity, to)
        return {}

    return write_and_drive(
        kind=kind,
        activity_id=activity_id,
        operation_id=operation_id,
        reason=reason,
        user=user,
        change=change,
    )


def _request_opening(
    kind: OperationKind,
    from_statuses: frozenset[ActivityStatus],
    *,
    activity_id: int,
    operation_id: str,
    reason: str,
    user: User | None,
) -> str:
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
        move(activity, ActivityStatus.OPEN)
        if first:
            Activity.objects.filter(pk=activity.pk).update(opened_at=Now())
        return {"first": first}

    return write_and_drive(
        kind=kind,
        activity_id=activity_id,
        operation_id=operation_id,
        reason=reason,
        user=user,
        change=change,
    )


def _require_stock(activity: Activity, sku_id: int, units: int) -> None:
    if units < 1:
        raise OperationRefused("units must be at least 1")
    if activity.status in {ActivityStatus.DRAFT, ActivityStatus.SETTLED}:
        raise OperationRefused(f"activity {activity.pk} is {activity.status}: its stock is fixed")
    if not Stock.objects.filter(pk=sku_id, activity_id=activity.pk).exists():
        raise OperationRefused(f"activity {activity.pk} has no SKU {sku_id}")

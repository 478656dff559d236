"""How an operator's request is written: permission, row, what PostgreSQL decides with it, and go.

The one path of all requests in `operations.py`.
"""

import time
from collections.abc import Callable
from typing import Any, Final

import structlog
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models.functions import Now
from ulid import ULID

import faultpoint
from inventory.errors import GateUnavailable, OperationRefused
from inventory.models import Activity, GateOperation
from inventory.operation_driver import STATUS_KINDS, drive_operation
from inventory.states import ACTIVITY_ALLOWED, ActivityStatus, OperationKind, OperationStatus

log = structlog.get_logger(__name__)

PERMISSIONS: Final[dict[OperationKind, str]] = {
    OperationKind.WARM_UP: "inventory.operate_gate",
    OperationKind.OPEN: "inventory.operate_gate",
    OperationKind.PAUSE: "inventory.operate_gate",
    OperationKind.RESUME: "inventory.operate_gate",
    OperationKind.CLOSE: "inventory.operate_gate",
    OperationKind.EDIT: "inventory.operate_gate",
    OperationKind.TOP_UP: "inventory.change_units",
    OperationKind.CUT: "inventory.change_units",
    OperationKind.STOP: "inventory.stop_sale",
}

# The scanner may be driving the same row: whoever asked should see the end of it.
_AGAIN_AFTER_S: Final = (0.0, 0.05, 0.2)

Change = Callable[[Activity, str], dict[str, Any]]  # (locked row, operation id) → payload


def new_operation_id() -> str:
    """Draw the id of a new operation."""
    return f"op_{ULID()}"


def write_and_drive(
    *,
    kind: OperationKind,
    activity_id: int,
    reason: str,
    change: Change,
    operation_id: str = "",
    user: User | None = None,
    sku_id: int | None = None,
    units: int = 0,
) -> str:
    """Write the row and what PostgreSQL decides with it, then drive it at once.

    Args:
        kind: what is asked.
        activity_id: the sale; its row is locked while `change` runs.
        reason: for the audit, not empty.
        change: what PostgreSQL decides with the row; returns the row's payload.
        operation_id: drawn when empty; of a known one nothing is written again.
        user: who asks; None is the system itself.
        sku_id: of a top-up or cut.
        units: of a top-up or cut.

    Returns:
        The operation's id. Whether the gate has followed stands in its row.

    Raises:
        PermissionDenied: the user lacks the kind's permission.
        OperationRefused: no such sale, no reason, the id of another request, or what `change` says.
    """
    if user is not None and not user.has_perm(PERMISSIONS[kind]):
        raise PermissionDenied(PERMISSIONS[kind])
    if not reason.strip():
        raise OperationRefused("a reason is needed: it is the audit record")
    operation_id = operation_id or new_operation_id()
    with transaction.atomic(durable=True):
        activity = Activity.objects.select_for_update(no_key=True).filter(pk=activity_id).first()
        if activity is None:
            raise OperationRefused(f"there is no activity {activity_id}")
        known = GateOperation.objects.filter(pk=operation_id).first()
        if known is None:
            payload = change(activity, operation_id)
            if kind in STATUS_KINDS:
                _replace_older(activity_id, operation_id)
            GateOperation.objects.create(
                operation_id=operation_id,
                activity=activity,
                sku_id=sku_id,
                kind=kind,
                version=activity.version,
                units=units,
                payload=payload,
                reason=reason.strip(),
                requested_by=user,
            )
            log.info(
                "gate operation requested",
                operation_id=operation_id,
                kind=kind.value,
                activity_id=activity_id,
                sku_id=sku_id,
                units=units,
                requested_by=user.get_username() if user else "system",
            )
        elif (known.kind, known.activity_id, known.sku_id, known.units) != (
            kind,
            activity_id,
            sku_id,
            units,
        ):
            raise OperationRefused(f"operation {operation_id} was another request")
    faultpoint.hit("operation.after_row")
    try:
        for pause_s in _AGAIN_AFTER_S:
            time.sleep(pause_s)
            if drive_operation(operation_id) is not OperationStatus.REQUESTED:
                break
    except GateUnavailable as error:
        log.warning("gate operation waits", operation_id=operation_id, error=str(error))
    return operation_id


def _replace_older(activity_id: int, operation_id: str) -> None:
    """A newer status wins: what is not at the gate yet must not arrive there after it."""
    GateOperation.objects.filter(
        activity_id=activity_id, kind__in=STATUS_KINDS, status="REQUESTED"
    ).update(status="REFUSED", done_at=Now(), note=f"replaced by {operation_id}")


def move(activity: Activity, to: ActivityStatus) -> None:
    """Change a locked activity's status, if its present one allows that."""
    if to not in ACTIVITY_ALLOWED[ActivityStatus(activity.status)]:
        raise OperationRefused(f"activity {activity.pk} is {activity.status}, not able to be {to}")
    activity.status = to
    save(activity)


def save(activity: Activity) -> None:
    """Write a locked activity as its next version."""
    activity.version += 1
    activity.save()

"""Warm-up: the initial stock into PostgreSQL and the gate, only while the sale was never opened."""

from typing import Any

from django.contrib.auth.models import User

from inventory import stock
from inventory.activities import require_ready
from inventory.errors import OperationRefused
from inventory.models import Activity, Sku, Stock
from inventory.operation_driver import LOADABLE
from inventory.operation_requests import move, write_and_drive
from inventory.states import ActivityStatus, LedgerKind, OperationKind


def warm_up(
    *,
    activity_id: int,
    operation_id: str = "",
    reason: str = "warm-up",
    user: User | None = None,
) -> str:
    """Book the initial stock and load it into the gate, CLOSED; again only while never opened.

    Raises:
        OperationRefused: the sale is not ready, or was opened before.
        PermissionDenied: the user may not.
    """

    def change(activity: Activity, _: str) -> dict[str, Any]:
        skus = list(Sku.objects.filter(activity=activity).order_by("pk"))
        if activity.status == ActivityStatus.DRAFT:
            require_ready(activity, skus)
            Stock.objects.bulk_create(
                Stock(
                    sku=sku,
                    activity_id=activity.pk,
                    available=sku.initial_units,
                    initial=sku.initial_units,
                )
                for sku in skus
            )
            stock.book(
                stock.LedgerLine(
                    activity_id=activity.pk,
                    sku_id=sku.pk,
                    kind=LedgerKind.INITIAL,
                    source_id=str(sku.pk),
                    delta=sku.initial_units,
                    units=sku.initial_units,
                )
                for sku in skus
            )
            move(activity, ActivityStatus.WARM)
        elif activity.opened_at is not None or activity.status not in LOADABLE:
            raise OperationRefused(
                f"activity {activity.pk} was opened before: warm-up would forget what it sold; "
                "a lost gate comes back by rebuild_gate"
            )
        return {}

    return write_and_drive(
        kind=OperationKind.WARM_UP,
        activity_id=activity_id,
        operation_id=operation_id,
        reason=reason,
        user=user,
        change=change,
    )

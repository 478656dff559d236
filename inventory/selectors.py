"""What other apps may read of inventory: frozen records, no models. PostgreSQL only."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.db.models import Q, Sum

from inventory.contracts import GateConfig, SkuTerms
from inventory.models import Activity, AdmissionOptions, GateOperation, Sku, Stock, StockLedger
from inventory.states import ActivityStatus, OperationKind, OperationStatus

_VISIBLE: Final = ~Q(status=ActivityStatus.DRAFT)


@dataclass(frozen=True, kw_only=True, slots=True)
class SkuRecord:
    """A SKU as buyers and admission need it."""

    sku_id: int
    activity_id: int
    name: str
    price_cents: int
    currency: str
    limit_per_user: int
    initial_units: int
    available: int | None  # None before warm-up
    epoch: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ActivityRecord:
    """A sale with its SKUs, in the order of their ids."""

    activity_id: int
    name: str
    status: ActivityStatus
    starts_at: datetime
    ends_at: datetime
    validity_s: int
    pay_window_s: int
    max_open: int
    max_pending: int
    is_test: bool
    opened_at: datetime | None
    version: int
    rebuild_run: int
    rebuild_unfinished: bool
    loss_noted_at: datetime | None
    token_required: bool
    skus: tuple[SkuRecord, ...]

    def gate_config(self, sku: SkuRecord) -> GateConfig:
        """Return what the gate of one of its SKUs should hold."""
        return GateConfig(
            starts_ms=round(self.starts_at.timestamp() * 1000),
            ends_ms=round(self.ends_at.timestamp() * 1000),
            validity_ms=self.validity_s * 1000,
            limit_per_user=sku.limit_per_user,
            max_open=self.max_open,
            max_pending=self.max_pending,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class SkuConservation:
    """Final stock of a SKU beside the sums of its ledger: the two must agree at any time."""

    activity_id: int
    sku_id: int
    initial: int
    topped_up: int
    cut: int
    withheld: int
    available: int
    ledger_delta: int
    ledger_initial: int
    ledger_topped_up: int
    ledger_cut: int
    ledger_withheld: int
    sold_units: int  # gross, of the ledger
    restocked_units: int
    unbooked_operations: int  # REQUESTED top-ups and cuts


def sku_terms(sku_ids: Sequence[int]) -> dict[int, SkuTerms]:
    """Return what an order freezes, by SKU; unknown SKUs are missing. Cost: one statement."""
    return {
        sku.pk: SkuTerms(
            activity_id=sku.activity_id,
            sku_id=sku.pk,
            price_cents=sku.price_cents,
            currency=sku.currency,
            pay_window_s=sku.activity.pay_window_s,
            voided=sku.activity.voided_at is not None,
        )
        for sku in Sku.objects.select_related("activity").filter(pk__in=list(sku_ids))
    }


def serving_validities() -> dict[int, int]:
    """Return the validity in ms of each sale that was opened and is not SETTLED. One statement."""
    rows = (
        Activity.objects.filter(opened_at__isnull=False)
        .exclude(status=ActivityStatus.SETTLED)
        .values_list("pk", "validity_s")
    )
    return {activity_id: validity_s * 1000 for activity_id, validity_s in rows}


def serving_activities() -> list[int]:
    """Return the sales that scanner and sweep serve: opened once and not SETTLED."""
    return list(
        Activity.objects.filter(opened_at__isnull=False)
        .exclude(status=ActivityStatus.SETTLED)
        .order_by("pk")
        .values_list("pk", flat=True)
    )


def list_activities(*, include_tests: bool = True) -> list[ActivityRecord]:
    """Return all sales that left DRAFT, the newest first. Cost: four statements."""
    found = Activity.objects.filter(_VISIBLE).order_by("-starts_at", "-pk")
    if not include_tests:
        found = found.filter(is_test=False)
    return _records(list(found))


def activity_detail(activity_id: int) -> ActivityRecord | None:
    """Return a sale that left DRAFT, or None. Cost: four statements."""
    records = _records(list(Activity.objects.filter(_VISIBLE, pk=activity_id)))
    return records[0] if records else None


def activity_record(activity_id: int) -> ActivityRecord | None:
    """Return a sale in any status, for operators; None when there is none."""
    records = _records(list(Activity.objects.filter(pk=activity_id)))
    return records[0] if records else None


def operation_status(operation_id: str) -> tuple[str, str]:
    """Return status and note of an operators' change; of a top-up or cut the note tells the units.

    A cut takes what nobody has reserved: often fewer units than were asked for.
    """
    row = GateOperation.objects.only("status", "note", "kind", "units", "units_done").get(
        pk=operation_id
    )
    if row.status != OperationStatus.DONE or row.units_done is None or not row.units:
        return row.status, row.note
    verb = "taken" if row.kind == OperationKind.CUT else "added"
    units = f"{row.units_done} of {row.units} unit{'' if row.units == 1 else 's'} {verb}"
    return row.status, f"{units}; {row.note}" if row.note else units


def _records(activities: Sequence[Activity]) -> list[ActivityRecord]:
    ids = [activity.pk for activity in activities]
    available = dict(Stock.objects.filter(activity_id__in=ids).values_list("sku_id", "available"))
    with_token = set(
        AdmissionOptions.objects.filter(pk__in=ids, token_required=True).values_list(
            "pk", flat=True
        )
    )
    skus: dict[int, list[SkuRecord]] = {pk: [] for pk in ids}
    for sku in Sku.objects.filter(activity_id__in=ids).order_by("pk"):
        skus[sku.activity_id].append(
            SkuRecord(
                sku_id=sku.pk,
                activity_id=sku.activity_id,
                name=sku.name,
                price_cents=sku.price_cents,
                currency=sku.currency,
                limit_per_user=sku.limit_per_user,
                initial_units=sku.initial_units,
                available=available.get(sku.pk),
                epoch=sku.epoch,
            )
        )
    return [
        ActivityRecord(
            activity_id=activity.pk,
            name=activity.name,
            status=ActivityStatus(activity.status),
            starts_at=activity.starts_at,
            ends_at=activity.ends_at,
            validity_s=activity.validity_s,
            pay_window_s=activity.pay_window_s,
            max_open=activity.max_open,
            max_pending=activity.max_pending,
            is_test=activity.is_test,
            opened_at=activity.opened_at,
            version=activity.version,
            rebuild_run=activity.rebuild_run,
            rebuild_unfinished=activity.rebuild_unfinished,
            loss_noted_at=activity.loss_noted_at,
            token_required=activity.pk in with_token,
            skus=tuple(skus[activity.pk]),
        )
        for activity in activities
    ]


def conservation(activity_id: int) -> list[SkuConservation]:
    """Return stock and ledger sums of a sale's SKUs, for `check_invariants`.

    Call it inside a REPEATABLE READ transaction when it is compared with orders. Cost: three
    statements, one scan of the sale's ledger.
    """

    def units(kind: str) -> Sum:
        return Sum("units", filter=Q(kind=kind), default=0)

    stocks = list(Stock.objects.filter(activity_id=activity_id).order_by("sku_id"))
    sums = {
        row["sku_id"]: row
        for row in StockLedger.objects.filter(sku_id__in=[stock.pk for stock in stocks])
        .values("sku_id")
        .annotate(
            moved=Sum("delta", default=0),
            initial=units("INITIAL"),
            topped_up=units("TOP_UP"),
            cut=units("CUT"),
            withheld=units("WITHHELD"),
            sold=units("SALE"),
            restocked=units("RESTOCK"),
        )
    }
    unbooked: dict[int | None, int] = {}
    for sku_id in GateOperation.objects.filter(
        activity_id=activity_id, status="REQUESTED", kind__in=["TOP_UP", "CUT"]
    ).values_list("sku_id", flat=True):
        unbooked[sku_id] = unbooked.get(sku_id, 0) + 1
    empty = dict.fromkeys(
        ("moved", "initial", "topped_up", "cut", "withheld", "sold", "restocked"), 0
    )
    records = []
    for stock in stocks:
        row = sums.get(stock.pk, empty)
        records.append(
            SkuConservation(
                activity_id=activity_id,
                sku_id=stock.pk,
                initial=stock.initial,
                topped_up=stock.topped_up,
                cut=stock.cut,
                withheld=stock.withheld,
                available=stock.available,
                ledger_delta=row["moved"],
                ledger_initial=row["initial"],
                ledger_topped_up=row["topped_up"],
                ledger_cut=row["cut"],
                ledger_withheld=row["withheld"],
                sold_units=row["sold"],
                restocked_units=row["restocked"],
                unbooked_operations=unbooked.get(stock.pk, 0),
            )
        )
    return records

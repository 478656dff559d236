"""Activities, SKUs, final stock, its ledger, and operators' changes of the gate.

`stock` is the truth of what may be sold; the gate in Redis only decides who may try.
"""

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from inventory.states import ActivityStatus, LedgerKind, OperationKind, OperationStatus


def _choices(enum: type) -> list[tuple[str, str]]:
    return [(member.value, member.value) for member in enum]  # type: ignore[attr-defined]


class Activity(models.Model):
    """One sale: a window, its limits, and one or more SKUs."""

    name = models.CharField(max_length=120)
    status = models.CharField(
        max_length=16, choices=_choices(ActivityStatus), default=ActivityStatus.DRAFT
    )
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    validity_s = models.PositiveIntegerField(
        default=300,
        help_text="How long an accepted buyer's units are kept while his order is made.",
    )
    pay_window_s = models.PositiveIntegerField(
        default=900, help_text="How long an order may stay unpaid. At most 23 hours."
    )
    max_open = models.PositiveIntegerField(
        default=20_000, help_text="Reservations without an outcome; more answer BUSY."
    )
    max_pending = models.PositiveIntegerField(
        default=2_000, help_text="Reservations not known to be in the broker; more answer BUSY."
    )
    is_test = models.BooleanField(default=False, help_text="A rehearsal, left out of reports.")
    opened_at = models.DateTimeField(null=True, blank=True, editable=False)
    voided_at = models.DateTimeField(null=True, blank=True, editable=False)
    version = models.PositiveBigIntegerField(default=1, editable=False)
    # Rebuild: the newest run's number, whether it is unfinished, and when a loss was noted.
    rebuild_run = models.PositiveBigIntegerField(default=0, editable=False)
    rebuild_unfinished = models.BooleanField(default=False, editable=False)
    loss_noted_at = models.DateTimeField(null=True, blank=True, editable=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        verbose_name_plural = "activities"
        constraints = [
            models.CheckConstraint(
                condition=Q(ends_at__gt=F("starts_at")), name="inventory_activity_window_ck"
            ),
            models.CheckConstraint(
                condition=Q(pay_window_s__gte=1, pay_window_s__lte=23 * 3600),
                name="inventory_activity_pay_window_ck",
            ),
            models.CheckConstraint(
                condition=Q(validity_s__gte=1), name="inventory_activity_validity_ck"
            ),
            models.CheckConstraint(
                condition=Q(status__in=[s.value for s in ActivityStatus]),
                name="inventory_activity_status_ck",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.pk})"


class Sku(models.Model):
    """A thing on sale. Price and currency are frozen once the activity leaves DRAFT."""

    activity = models.ForeignKey(Activity, on_delete=models.PROTECT, related_name="skus")
    name = models.CharField(max_length=120)
    price_cents = models.PositiveBigIntegerField()
    currency = models.CharField(max_length=3, default="EUR")
    limit_per_user = models.PositiveIntegerField(default=1)
    initial_units = models.PositiveBigIntegerField(help_text="Units at the start of the sale.")
    # The gate's epoch: raised by each rebuild; what carries an older one is refused.
    epoch = models.PositiveBigIntegerField(default=1, editable=False)

    class Meta:
        verbose_name = "SKU"
        constraints = [
            models.CheckConstraint(
                condition=Q(limit_per_user__gte=1), name="inventory_sku_limit_ck"
            ),
            models.CheckConstraint(condition=Q(price_cents__gte=1), name="inventory_sku_price_ck"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.pk})"


class Stock(models.Model):
    """Final stock of a SKU: one hot row, updated by HOT updates only (fillfactor 50, no index)."""

    sku = models.OneToOneField(
        Sku, on_delete=models.PROTECT, primary_key=True, related_name="stock"
    )
    activity_id = models.BigIntegerField()
    available = models.BigIntegerField()
    initial = models.BigIntegerField()
    topped_up = models.BigIntegerField(default=0)
    cut = models.BigIntegerField(default=0)
    withheld = models.BigIntegerField(default=0)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(available__gte=0), name="inventory_stock_available_ck"
            ),
        ]

    def __str__(self) -> str:
        return f"stock of SKU {self.pk}"


class StockLedger(models.Model):
    """One line for each move of final stock, in the transaction that makes it. Append-only."""

    activity_id = models.BigIntegerField()
    sku_id = models.BigIntegerField()
    kind = models.CharField(max_length=12, choices=_choices(LedgerKind))
    source_id = models.CharField(max_length=40)
    delta = models.BigIntegerField(help_text="Change of `available`.")
    units = models.BigIntegerField(help_text="Units concerned; for WITHHELD delta is 0.")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["source_id", "kind"], name="inventory_stockledger_source_kind_uniq"
            ),
        ]
        indexes = [models.Index(fields=["sku_id", "id"], name="inventory_stockledger_sku_idx")]

    def __str__(self) -> str:
        return f"{self.kind} {self.source_id}"


class GateOperation(models.Model):
    """An operator's change of a running sale: the row is the intent and the audit record."""

    operation_id = models.CharField(max_length=40, primary_key=True)
    activity = models.ForeignKey(Activity, on_delete=models.PROTECT, related_name="operations")
    sku = models.ForeignKey(Sku, on_delete=models.PROTECT, null=True, blank=True)
    kind = models.CharField(max_length=12, choices=_choices(OperationKind))
    status = models.CharField(
        max_length=12, choices=_choices(OperationStatus), default=OperationStatus.REQUESTED
    )
    version = models.PositiveBigIntegerField(help_text="The activity's version that it made.")
    units = models.BigIntegerField(default=0, help_text="Asked for: top-up or cut.")
    units_done = models.BigIntegerField(null=True, blank=True, help_text="What it really moved.")
    epoch = models.PositiveBigIntegerField(default=0)
    payload = models.JSONField(default=dict)
    reason = models.TextField()
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+"
    )
    requested_at = models.DateTimeField(db_default=Now())
    done_at = models.DateTimeField(null=True, blank=True)
    note = models.TextField(blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(status="REQUESTED", done_at__isnull=True)
                | Q(status__in=["DONE", "REFUSED"], done_at__isnull=False),
                name="inventory_gateoperation_done_ck",
            ),
            models.CheckConstraint(
                condition=Q(units__gte=0), name="inventory_gateoperation_units_ck"
            ),
        ]
        permissions = [
            ("operate_gate", "Can warm up, open, pause, resume, close and edit a sale"),
            ("change_units", "Can top up and cut a sale"),
            ("stop_sale", "Can stop a sale at once"),
        ]
        indexes = [
            models.Index(
                fields=["requested_at"],
                condition=Q(status="REQUESTED"),
                name="inventory_gateop_due_idx",
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.operation_id}"


# Their tables, too: Django looks for an app's models in this module.
from inventory.admission_models import AdmissionOptions, DenyEntry  # noqa: E402
from inventory.rebuild_models import GateMark, RebuildRun  # noqa: E402

__all__ = [
    "Activity",
    "AdmissionOptions",
    "DenyEntry",
    "GateMark",
    "GateOperation",
    "RebuildRun",
    "Sku",
    "Stock",
    "StockLedger",
]

"""Orders, items, and reservations as PostgreSQL knows them.

Rows of a sale refer to activity and SKU by number, without a foreign key: the check would lock
two hot rows for each order; the terms are read in the same transaction instead.
"""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from orders.states import ENDED, CancelReason, OrderStatus, ReleaseState, ReservationOutcome


def _choices(enum: type) -> list[tuple[str, str]]:
    return [(member.value, member.value) for member in enum]  # type: ignore[attr-defined]


class Order(models.Model):
    """A buyer's order: made once for a reservation, changed by guarded transitions only."""

    order_id = models.CharField(max_length=30, primary_key=True, db_collation="C")
    reservation_id = models.CharField(max_length=30, db_collation="C")
    request_id = models.CharField(max_length=30, db_collation="C")
    activity_id = models.BigIntegerField()
    sku_id = models.BigIntegerField()
    user_id = models.CharField(max_length=64)
    quantity = models.PositiveIntegerField()
    amount_cents = models.PositiveBigIntegerField()
    currency = models.CharField(max_length=3)
    status = models.CharField(
        max_length=12, choices=_choices(OrderStatus), default=OrderStatus.CREATED
    )
    aggregate_version = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField()
    paid_at = models.DateTimeField(null=True, blank=True)
    payment_id = models.CharField(max_length=64, blank=True, default="")
    canceled_at = models.DateTimeField(null=True, blank=True)
    cancel_reason = models.CharField(
        max_length=20, choices=_choices(CancelReason), blank=True, default=""
    )
    traceparent = models.CharField(max_length=64, blank=True, default="")

    class Meta:
        db_table = "orders_order"
        permissions = [("cancel_order", "Can cancel unpaid orders of any buyer")]
        constraints = [
            models.UniqueConstraint(
                fields=["reservation_id"], name="orders_order_reservation_uniq"
            ),
            models.UniqueConstraint(
                fields=["activity_id", "sku_id", "user_id"],
                condition=~Q(status__in=sorted(s.value for s in ENDED)),
                name="orders_order_live_buyer_uniq",
            ),
            models.CheckConstraint(condition=Q(quantity__gte=1), name="orders_order_quantity_ck"),
            models.CheckConstraint(
                condition=Q(canceled_at__isnull=False, status="CANCELED")
                | (Q(canceled_at__isnull=True) & ~Q(status="CANCELED")),
                name="orders_order_canceled_ck",
            ),
            models.CheckConstraint(
                condition=Q(status__in=["CREATED", "PAYING", "CANCELED"], paid_at__isnull=True)
                | Q(
                    status__in=["PAID", "FULFILLING", "FULFILLED", "REFUNDING", "REFUNDED"],
                    paid_at__isnull=False,
                ),
                name="orders_order_paid_ck",
            ),
        ]
        indexes = [
            models.Index(
                fields=["expires_at", "order_id"],
                condition=Q(status__in=["CREATED", "PAYING"]),
                name="orders_order_overdue_idx",
            ),
            models.Index(fields=["user_id", "-created_at"], name="orders_order_user_idx"),
        ]

    def __str__(self) -> str:
        return self.order_id


class OrderItem(models.Model):
    """What was bought, at the price that was frozen when the sale left DRAFT."""

    order = models.ForeignKey(
        Order, on_delete=models.PROTECT, related_name="items", db_constraint=False
    )
    sku_id = models.BigIntegerField()
    quantity = models.PositiveIntegerField()
    price_cents = models.PositiveBigIntegerField()
    currency = models.CharField(max_length=3)

    class Meta:
        db_table = "orders_item"

    def __str__(self) -> str:
        return f"{self.quantity} x SKU {self.sku_id}"


class ReservationRow(models.Model):
    """The outcome of a reservation, written by the order transaction (or the sweep's reject)."""

    reservation_id = models.CharField(max_length=30, primary_key=True, db_collation="C")
    message_id = models.CharField(max_length=30, db_collation="C")
    request_id = models.CharField(max_length=30, db_collation="C")
    order_id = models.CharField(max_length=30, db_collation="C")
    activity_id = models.BigIntegerField()
    sku_id = models.BigIntegerField()
    user_id = models.CharField(max_length=64)
    quantity = models.PositiveIntegerField()
    outcome = models.CharField(max_length=8, choices=_choices(ReservationOutcome))
    reject_reason = models.CharField(max_length=24, blank=True, default="")
    release_state = models.CharField(
        max_length=4, choices=_choices(ReleaseState), default=ReleaseState.NONE
    )
    restock = models.BooleanField(default=True)
    release_due_at = models.DateTimeField(null=True, blank=True)
    released_at = models.DateTimeField(null=True, blank=True)
    valid_until = models.DateTimeField()
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "orders_reservation"
        verbose_name = "reservation"
        constraints = [
            models.CheckConstraint(
                condition=Q(outcome="REJECTED") & ~Q(reject_reason="")
                | Q(outcome="ORDERED", reject_reason=""),
                name="orders_reservation_reject_ck",
            ),
            models.CheckConstraint(
                condition=Q(release_state="NONE", release_due_at__isnull=True)
                | Q(release_state__in=["DUE", "DONE"], release_due_at__isnull=False),
                name="orders_reservation_due_ck",
            ),
        ]
        indexes = [
            models.Index(
                fields=["release_due_at"],
                condition=Q(release_state="DUE"),
                name="orders_reservation_due_idx",
            ),
            models.Index(fields=["activity_id", "user_id"], name="orders_reservation_user_idx"),
        ]

    def __str__(self) -> str:
        return self.reservation_id


class ReservationExtension(models.Model):
    """An audited permission to order past valid_until; eligibility is never extended otherwise."""

    reservation_id = models.CharField(max_length=30, primary_key=True, db_collation="C")
    valid_until = models.DateTimeField()
    reason = models.TextField()
    granted_by = models.CharField(max_length=150)
    granted_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "orders_extension"
        permissions = [
            ("grant_extension", "Can let a held reservation become an order past its end"),
            ("compensate_reservation", "Can reject a held reservation"),
        ]

    def __str__(self) -> str:
        return self.reservation_id


# Their tables, too: Django looks for an app's models in this module.
from orders.effect_models import EffectRow, Notification  # noqa: E402
from orders.payments.models import PaymentAttempt, Refund, WebhookEvent  # noqa: E402
from orders.query_model import OrderQueryRow  # noqa: E402
from orders.reconcile.models import ReconcileFinding, ReconcileRun  # noqa: E402
from orders.settlement.models import Settlement  # noqa: E402
from orders.void_model import ActivityVoid  # noqa: E402

__all__ = [
    "ActivityVoid",
    "EffectRow",
    "Notification",
    "Order",
    "OrderItem",
    "OrderQueryRow",
    "PaymentAttempt",
    "ReconcileFinding",
    "ReconcileRun",
    "Refund",
    "ReservationExtension",
    "ReservationRow",
    "Settlement",
    "WebhookEvent",
]

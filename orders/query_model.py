"""The read model: one row an order, as the newest event that was seen tells it."""

from django.db import models
from django.db.models.functions import Now


class OrderQueryRow(models.Model):
    """Written by the projection only, guarded by `aggregate_version`; see orders/query.py."""

    order_id = models.CharField(max_length=30, primary_key=True, db_collation="C")
    reservation_id = models.CharField(max_length=30, db_collation="C")
    request_id = models.CharField(max_length=30, db_collation="C")
    activity_id = models.BigIntegerField()
    sku_id = models.BigIntegerField()
    user_id = models.CharField(max_length=64)
    quantity = models.PositiveIntegerField()
    amount_cents = models.PositiveBigIntegerField()
    currency = models.CharField(max_length=3)
    status = models.CharField(max_length=12)
    reason = models.CharField(max_length=24, blank=True, default="")
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, blank=True)
    paid_at = models.DateTimeField(null=True, blank=True)
    canceled_at = models.DateTimeField(null=True, blank=True)
    payment_id = models.CharField(max_length=64, blank=True, default="")
    aggregate_version = models.PositiveIntegerField()
    projected_at = models.DateTimeField(db_default=Now())

    class Meta:
        """Indexes that the order transaction must not pay for."""

        db_table = "orders_query"
        verbose_name = "order (read model)"
        verbose_name_plural = "orders (read model)"
        indexes = [
            models.Index(fields=["activity_id", "status"], name="orders_query_activity_idx"),
            models.Index(fields=["user_id", "order_id"], name="orders_query_user_idx"),
        ]

    def __str__(self) -> str:
        return self.order_id

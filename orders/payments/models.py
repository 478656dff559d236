"""Attempts, refunds and webhooks. Rows are recorded before the call that they describe."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from orders.payments.states import (
    ATTEMPT_OPEN,
    REFUND_OPEN,
    AttemptStatus,
    RefundReason,
    RefundStatus,
    WebhookStatus,
)


def _choices(enum: type) -> list[tuple[str, str]]:
    return [(member.value, member.value) for member in enum]  # type: ignore[attr-defined]


_ATTEMPT_OPEN = sorted(state.value for state in ATTEMPT_OPEN)
_REFUND_OPEN = sorted(state.value for state in REFUND_OPEN)


class PaymentAttempt(models.Model):
    """One attempt to pay an order; `attempt_id` is the provider's idempotency key."""

    attempt_id = models.CharField(max_length=30, primary_key=True, db_collation="C")
    order = models.ForeignKey("orders.Order", on_delete=models.PROTECT, related_name="payments")
    attempt_no = models.PositiveIntegerField()
    provider = models.CharField(max_length=20)
    provider_payment_id = models.CharField(max_length=64, null=True, blank=True)  # noqa: DJ001
    amount_cents = models.PositiveBigIntegerField()
    currency = models.CharField(max_length=3)
    status = models.CharField(
        max_length=16, choices=_choices(AttemptStatus), default=AttemptStatus.CREATED
    )
    created_at = models.DateTimeField(db_default=Now())
    submitted_at = models.DateTimeField(help_text="The last send, written before it.")
    submit_count = models.PositiveIntegerField(default=1)
    next_try_at = models.DateTimeField(null=True, blank=True)
    tries = models.PositiveIntegerField(default=0, help_text="Queries without a result so far.")
    settled_at = models.DateTimeField(null=True, blank=True)
    error_class = models.CharField(max_length=40, blank=True, default="")
    outside_reference = models.CharField(
        max_length=64,
        blank=True,
        default="",
        db_default="",
        help_text="Its money went back by another way: an operator's proof.",
    )

    class Meta:
        db_table = "orders_payment_attempt"
        constraints = [
            models.UniqueConstraint(
                fields=["order", "attempt_no"], name="orders_payment_attempt_order_no_uniq"
            ),
            models.UniqueConstraint(
                fields=["order"],
                condition=Q(status__in=_ATTEMPT_OPEN),
                name="orders_payment_attempt_open_uniq",
            ),
            models.UniqueConstraint(
                fields=["provider", "provider_payment_id"],
                name="orders_payment_attempt_provider_id_uniq",
            ),
            models.CheckConstraint(
                condition=Q(amount_cents__gte=1), name="orders_payment_attempt_amount_ck"
            ),
            models.CheckConstraint(
                condition=Q(
                    status__in=_ATTEMPT_OPEN, settled_at__isnull=True, next_try_at__isnull=False
                )
                | Q(
                    status__in=["SUCCEEDED", "FAILED"],
                    settled_at__isnull=False,
                    next_try_at__isnull=True,
                ),
                name="orders_payment_attempt_settled_ck",
            ),
            models.CheckConstraint(
                condition=~Q(status="SUCCEEDED") | Q(provider_payment_id__isnull=False),
                name="orders_payment_attempt_captured_ck",
            ),
        ]
        indexes = [
            models.Index(
                fields=["next_try_at"],
                condition=Q(status__in=_ATTEMPT_OPEN),
                name="orders_payment_attempt_due_idx",
            )
        ]

    def __str__(self) -> str:
        return self.attempt_id


class Refund(models.Model):
    """The refund of one captured attempt; `provider_key` is the provider's idempotency key."""

    refund_id = models.CharField(max_length=30, primary_key=True, db_collation="C")
    attempt = models.OneToOneField(PaymentAttempt, on_delete=models.PROTECT, related_name="refund")
    order = models.ForeignKey("orders.Order", on_delete=models.PROTECT, related_name="refunds")
    provider = models.CharField(max_length=20)
    provider_key = models.CharField(max_length=40)
    provider_refund_id = models.CharField(max_length=64, null=True, blank=True)  # noqa: DJ001
    amount_cents = models.PositiveBigIntegerField()
    currency = models.CharField(max_length=3)
    reason = models.CharField(max_length=16, choices=_choices(RefundReason))
    restock = models.BooleanField(
        default=True, help_text="Refund of a paid order: its units are sold again."
    )
    note = models.TextField(blank=True, default="")
    requested_by = models.CharField(max_length=150, blank=True, default="")
    status = models.CharField(
        max_length=16, choices=_choices(RefundStatus), default=RefundStatus.DUE
    )
    created_at = models.DateTimeField(db_default=Now())
    submitted_at = models.DateTimeField(null=True, blank=True)
    submit_count = models.PositiveIntegerField(default=0)
    next_try_at = models.DateTimeField(null=True, blank=True)
    tries = models.PositiveIntegerField(default=0)
    settled_at = models.DateTimeField(null=True, blank=True)
    error_class = models.CharField(max_length=40, blank=True, default="")
    outside_reference = models.CharField(
        max_length=64,
        blank=True,
        default="",
        db_default="",
        help_text="Given back by another way than the provider: an operator's proof.",
    )

    class Meta:
        db_table = "orders_refund"
        permissions = [("refund_order", "Can refund paid orders and retry failed refunds")]
        constraints = [
            models.UniqueConstraint(
                fields=["provider", "provider_key"], name="orders_refund_provider_key_uniq"
            ),
            models.UniqueConstraint(
                fields=["provider", "provider_refund_id"], name="orders_refund_provider_id_uniq"
            ),
            models.CheckConstraint(
                condition=Q(amount_cents__gte=1), name="orders_refund_amount_ck"
            ),
            models.CheckConstraint(
                condition=Q(
                    status__in=_REFUND_OPEN, settled_at__isnull=True, next_try_at__isnull=False
                )
                | Q(
                    status__in=["SUCCEEDED", "FAILED"],
                    settled_at__isnull=False,
                    next_try_at__isnull=True,
                ),
                name="orders_refund_settled_ck",
            ),
            models.CheckConstraint(
                condition=Q(status="DUE") | Q(submitted_at__isnull=False),
                name="orders_refund_submitted_ck",
            ),
            models.CheckConstraint(
                condition=~Q(status="SUCCEEDED")
                | Q(provider_refund_id__isnull=False)
                | ~Q(outside_reference=""),
                name="orders_refund_succeeded_ck",
            ),
        ]
        indexes = [
            models.Index(
                fields=["next_try_at"],
                condition=Q(status__in=_REFUND_OPEN),
                name="orders_refund_due_idx",
            )
        ]

    def __str__(self) -> str:
        return self.refund_id


class WebhookEvent(models.Model):
    """A webhook with a good signature: its raw body is kept, its effect happens once."""

    provider = models.CharField(max_length=20)
    event_id = models.CharField(max_length=64)
    kind = models.CharField(max_length=20)
    subject = models.CharField(max_length=64, help_text="Our idempotency key that it names.")
    raw_body = models.BinaryField()
    status = models.CharField(
        max_length=8, choices=_choices(WebhookStatus), default=WebhookStatus.PARKED
    )
    reason = models.CharField(max_length=40, blank=True, default="")
    received_at = models.DateTimeField(db_default=Now())
    next_try_at = models.DateTimeField(null=True, blank=True)
    tries = models.PositiveIntegerField(default=0)
    settled_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "orders_webhook"
        constraints = [
            models.UniqueConstraint(
                fields=["provider", "event_id"], name="orders_webhook_event_uniq"
            ),
            models.CheckConstraint(
                condition=Q(status="PARKED", settled_at__isnull=True, next_try_at__isnull=False)
                | Q(
                    status__in=["APPLIED", "IGNORED", "TICKETED"],
                    settled_at__isnull=False,
                    next_try_at__isnull=True,
                ),
                name="orders_webhook_settled_ck",
            ),
        ]
        indexes = [
            models.Index(
                fields=["next_try_at"],
                condition=Q(status="PARKED"),
                name="orders_webhook_parked_idx",
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.event_id}"

"""Effects of paid and refunded orders: one row a group and fact, and the mails."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from orders.states import NotificationStatus


class EffectRow(models.Model):
    """What one group made of one fact. The key is the business's own, beside the inbox."""

    consumer_group = models.CharField(max_length=60, db_collation="C")
    source_type = models.CharField(max_length=24, help_text="The event: ORDER_PAID, …")
    source_id = models.CharField(max_length=30, db_collation="C", help_text="The order.")
    rule_version = models.PositiveIntegerField(default=1)
    event_id = models.CharField(max_length=30, db_collation="C")
    activity_id = models.BigIntegerField()
    user_id = models.CharField(max_length=64)
    value = models.BigIntegerField(help_text="Signed: a refund takes back what a payment gave.")
    unit = models.CharField(max_length=8, help_text="A currency (in cents), POINT or SCORE.")
    detail = models.JSONField(default=dict)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        """One row a group, fact and rule."""

        db_table = "orders_effect"
        verbose_name = "effect"
        constraints = [
            models.UniqueConstraint(
                fields=["consumer_group", "source_type", "source_id", "rule_version"],
                name="orders_effect_source_uniq",
            ),
        ]
        indexes = [models.Index(fields=["source_id"], name="orders_effect_source_idx")]

    def __str__(self) -> str:
        return f"{self.consumer_group} {self.source_type} {self.source_id}"


class Notification(models.Model):
    """A mail to a buyer: PENDING with the inbox, SENDING committed before it is sent.

    UNKNOWN: the sender died or lost the answer. It is listed here and never sent again by itself.
    """

    source_type = models.CharField(max_length=24)
    source_id = models.CharField(max_length=30, db_collation="C")
    channel = models.CharField(max_length=8, default="mail")
    activity_id = models.BigIntegerField()
    user_id = models.CharField(max_length=64)
    amount_cents = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    status = models.CharField(
        max_length=8,
        choices=[(s.value, s.value) for s in NotificationStatus],
        default=NotificationStatus.PENDING,
    )
    created_at = models.DateTimeField(db_default=Now())
    next_try_at = models.DateTimeField(db_default=Now())
    sending_at = models.DateTimeField(null=True, blank=True)
    sent_at = models.DateTimeField(null=True, blank=True)
    tries = models.PositiveIntegerField(default=0)
    error = models.CharField(max_length=200, blank=True, default="")

    class Meta:
        """One mail a fact."""

        db_table = "orders_notification"
        permissions = [("resend_notification", "Can send a notification again")]
        constraints = [
            models.UniqueConstraint(
                fields=["source_type", "source_id", "channel"],
                name="orders_notification_source_uniq",
            ),
            models.CheckConstraint(
                condition=~Q(status="SENT") | Q(sent_at__isnull=False),
                name="orders_notification_sent_ck",
            ),
            models.CheckConstraint(
                condition=~Q(status__in=["SENDING", "UNKNOWN"]) | Q(sending_at__isnull=False),
                name="orders_notification_sending_ck",
            ),
        ]
        indexes = [
            models.Index(
                fields=["next_try_at"],
                condition=Q(status__in=["PENDING", "SENDING"]),
                name="orders_notification_due_idx",
            ),
            # Looked at every few seconds; the queue itself may be as long as there are orders.
            models.Index(
                fields=["sending_at"],
                condition=Q(status="SENDING"),
                name="orders_notification_lost_idx",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.channel} {self.source_type} {self.source_id}"

"""Dead messages, each time one died, and the groups of those that died of the same thing."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from dlq_admin.states import MessageStatus, Resolution

_STATUS = [(status.value, status.value) for status in MessageStatus]
_RESOLUTION = [(resolution.value, resolution.value) for resolution in Resolution]


class FailureGroup(models.Model):
    """Messages of one consumer group that died of the same thing."""

    consumer_group = models.CharField(max_length=120, db_collation="C")
    error_class = models.CharField(max_length=64)  # the stable reason code
    fingerprint = models.CharField(max_length=32, db_collation="C")
    sample = models.CharField(max_length=500, default="")  # normalised error text: no ids in it
    message_count = models.IntegerField(default=0)
    first_seen_at = models.DateTimeField(db_default=Now())
    last_seen_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "dlq_failure_group"
        constraints = [
            models.UniqueConstraint(
                fields=["consumer_group", "error_class", "fingerprint"],
                name="dlq_failure_group_cause_uniq",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.consumer_group} {self.error_class}"


class DlqMessage(models.Model):
    """One dead message of one consumer group, with its bytes as they came.

    Its row in messaging's quarantine table is written in the same transaction: that row is what
    holds a reservation. Ids are read leniently from the body; empty when it does not tell.
    """

    consumer_group = models.CharField(max_length=120, db_collation="C")
    message_id = models.CharField(max_length=64, db_collation="C")
    quarantine = models.ForeignKey(
        "messaging.QuarantineRow", on_delete=models.PROTECT, related_name="+"
    )
    failure_group = models.ForeignKey(
        FailureGroup, on_delete=models.PROTECT, related_name="messages", db_index=False
    )
    ticket = models.ForeignKey(  # the one that deals with it now; None: settled, never a ticket
        "dlq_admin.Ticket",
        on_delete=models.PROTECT,
        related_name="messages",
        null=True,
        db_index=False,
    )
    status = models.CharField(max_length=8, choices=_STATUS, default=MessageStatus.OPEN)
    resolution = models.CharField(max_length=12, choices=_RESOLUTION, default="", blank=True)
    evidence = models.JSONField(default=dict)  # why it could be closed
    closed_at = models.DateTimeField(null=True)
    source = models.CharField(max_length=12)  # DLQ, CONSUMER, OUTBOX
    topic = models.CharField(max_length=120)  # where it was published first
    tag = models.CharField(max_length=64, default="")
    keys = models.TextField(default="")
    properties = models.JSONField(default=dict)
    body = models.BinaryField()
    body_sha256 = models.CharField(max_length=64)
    error_class = models.CharField(max_length=64)
    error = models.TextField(default="")
    reservation_id = models.CharField(max_length=40, default="", db_collation="C")
    order_id = models.CharField(max_length=40, default="", db_collation="C")
    user_id = models.CharField(max_length=64, default="", db_collation="C")
    activity_id = models.BigIntegerField(null=True)
    sku_id = models.BigIntegerField(null=True)
    quantity = models.IntegerField(null=True)
    valid_until = models.DateTimeField(null=True)
    trace_id = models.CharField(max_length=32, default="")
    occurrence_count = models.IntegerField(default=1)
    version = models.IntegerField(default=1)  # + 1 with every change: part of a plan's hash
    first_seen_at = models.DateTimeField(db_default=Now())
    last_seen_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "dlq_message"
        verbose_name = "dead message"
        constraints = [
            # In this order it also serves the search by message id.
            models.UniqueConstraint(
                fields=["message_id", "consumer_group"], name="dlq_message_group_uniq"
            ),
            models.CheckConstraint(
                condition=Q(status="OPEN", resolution="", closed_at__isnull=True)
                | Q(status="CLOSED", closed_at__isnull=False) & ~Q(resolution=""),
                name="dlq_message_closed_ck",
            ),
        ]
        indexes = [
            # Keyset pages: of everything, of a ticket, of a failure group, newest first.
            models.Index(fields=["-last_seen_at", "-id"], name="dlq_message_newest_idx"),
            models.Index(fields=["ticket", "-id"], name="dlq_message_ticket_idx"),
            models.Index(
                fields=["ticket", "id"],
                condition=Q(status="OPEN"),
                name="dlq_message_ticket_open_idx",
            ),
            models.Index(fields=["failure_group", "-id"], name="dlq_message_failure_idx"),
            # Age and depth of each group: the gauges.
            models.Index(
                fields=["consumer_group", "first_seen_at"],
                condition=Q(status="OPEN"),
                name="dlq_message_open_idx",
            ),
            # Inflow over time.
            models.Index(fields=["first_seen_at"], name="dlq_message_first_idx"),
            # Search by prefix (collation C).
            models.Index(
                fields=["reservation_id"],
                condition=~Q(reservation_id=""),
                name="dlq_message_rsv_idx",
            ),
            models.Index(
                fields=["order_id"], condition=~Q(order_id=""), name="dlq_message_order_idx"
            ),
            models.Index(fields=["user_id"], condition=~Q(user_id=""), name="dlq_message_user_idx"),
        ]

    def __str__(self) -> str:
        return f"{self.consumer_group} {self.message_id}"


class DlqOccurrence(models.Model):
    """One death of a message. Never changed; the same copy read twice is one occurrence."""

    message = models.ForeignKey(DlqMessage, on_delete=models.PROTECT, related_name="occurrences")
    source = models.CharField(max_length=12)
    origin = models.CharField(max_length=160, db_collation="C")  # names this copy, nothing else
    broker_message_id = models.CharField(max_length=64, default="")
    queue_id = models.IntegerField(null=True)
    queue_offset = models.BigIntegerField(null=True)
    delivery_attempt = models.IntegerField(default=1)
    error_class = models.CharField(max_length=64)
    error = models.TextField(default="")
    trace_id = models.CharField(max_length=32, default="")
    build = models.IntegerField(null=True)  # newest build of the group when it was stored
    replay_id = models.CharField(max_length=40, default="")  # it died in this replay
    died_at = models.DateTimeField()
    seen_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "dlq_occurrence"
        verbose_name = "death"
        constraints = [
            models.UniqueConstraint(
                fields=["message", "source", "origin"], name="dlq_occurrence_origin_uniq"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.source} {self.origin}"

"""Inbox, outbox, event archive, quarantine, paused groups and workers' heartbeats.

Inbox, outbox and event archive are partitioned tables made in SQL (`messaging/sql/`). Of the first
two Django believes in one column `id` as their key while the database's key contains the partition
column.
"""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class InboxOutcome(models.TextChoices):
    """What a group did with a message, written in the same transaction as its effect."""

    CREATED = "CREATED"
    REJECTED = "REJECTED"
    APPLIED = "APPLIED"
    STALE_NOOP = "STALE_NOOP"


class InboxRow(models.Model):
    """One message of one group, once: database key (consumer_group, message_id), by ULID range."""

    id = models.BigIntegerField(primary_key=True)  # identity, for Django only
    consumer_group = models.TextField(db_collation="C")
    message_id = models.TextField(db_collation="C")
    outcome = models.TextField(choices=InboxOutcome.choices)
    reason = models.TextField(default="")
    reservation_id = models.TextField(default="", db_collation="C")
    order_id = models.TextField(default="", db_collation="C")
    delivery_attempt = models.IntegerField(default=1)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "messaging_inbox"
        managed = False

    def __str__(self) -> str:
        return f"{self.consumer_group} {self.message_id}"


class OutboxRow(models.Model):
    """A message to publish, written in the transaction that justifies it; a partition a day."""

    id = models.BigIntegerField(primary_key=True)  # identity, for Django only
    created_at = models.DateTimeField(db_default=Now())
    topic = models.TextField()
    tag = models.TextField()
    event_id = models.TextField(db_collation="C")
    keys = models.TextField()  # space-separated message keys
    payload = models.TextField()  # already serialised: resends are the same bytes
    properties = models.JSONField(default=dict)
    lane = models.SmallIntegerField()  # 0 compensate, 1 events, 2 timeouts
    deliver_at_ms = models.BigIntegerField(null=True)
    state = models.SmallIntegerField(default=0)  # 0 due, 1 sent, 2 quarantined
    available_at = models.DateTimeField(db_default=Now())
    attempts = models.IntegerField(default=0)
    max_attempts = models.IntegerField(default=20)
    claim_token = models.UUIDField(null=True)
    replay_id = models.TextField(default="")
    last_error = models.TextField(default="")
    sent_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "messaging_outbox"
        managed = False

    def __str__(self) -> str:
        return f"{self.topic} {self.event_id}"


class ArchivedEvent(models.Model):
    """An event as it was received, for ever unchanged: a trigger refuses UPDATE and DELETE."""

    event_id = models.TextField(primary_key=True, db_collation="C")
    topic = models.TextField()
    tag = models.TextField()
    aggregate_id = models.TextField(db_collation="C")
    aggregate_version = models.IntegerField()
    activity_id = models.BigIntegerField()
    occurred_at = models.DateTimeField()
    received_at = models.DateTimeField(db_default=Now())
    keys = models.TextField(default="")
    properties = models.JSONField(default=dict)
    body = models.BinaryField()

    class Meta:
        db_table = "messaging_event_archive"
        managed = False
        verbose_name = "archived event"

    def __str__(self) -> str:
        return f"{self.tag} {self.event_id}"


class QuarantineStatus(models.TextChoices):
    """OPEN rows wait for a person; RESOLVED ones have an outcome."""

    OPEN = "OPEN"
    RESOLVED = "RESOLVED"


class QuarantineSource(models.TextChoices):
    """Where the row came from."""

    CONSUMER = "CONSUMER"
    OUTBOX = "OUTBOX"
    DLQ = "DLQ"


class QuarantineRow(models.Model):
    """A message that no loop may handle any more: ours, and copies of the broker's dead ones.

    An OPEN row of the order-create group with a reservation *holds* that reservation: neither
    sweep nor consumer rejects it as expired. Read leniently from the body, so nullable.
    """

    consumer_group = models.CharField(max_length=120)
    message_id = models.CharField(max_length=64)
    source = models.CharField(max_length=12, choices=QuarantineSource.choices)
    status = models.CharField(
        max_length=12, choices=QuarantineStatus.choices, default=QuarantineStatus.OPEN
    )
    topic = models.CharField(max_length=120)
    tag = models.CharField(max_length=64, default="")
    keys = models.TextField(default="")
    properties = models.JSONField(default=dict)
    body = models.BinaryField()
    body_sha256 = models.CharField(max_length=64)
    reason = models.CharField(max_length=64)
    error = models.TextField(default="")
    delivery_attempt = models.IntegerField(default=1)
    occurrences = models.IntegerField(default=1)
    reservation_id = models.CharField(max_length=40, null=True, db_index=True)  # noqa: DJ001
    activity_id = models.BigIntegerField(null=True)
    sku_id = models.BigIntegerField(null=True)
    user_id = models.CharField(max_length=64, null=True)  # noqa: DJ001
    quantity = models.IntegerField(null=True)
    valid_until = models.DateTimeField(null=True)
    first_at = models.DateTimeField(db_default=Now())
    last_at = models.DateTimeField(db_default=Now())
    resolved_at = models.DateTimeField(null=True)
    resolution = models.CharField(max_length=64, default="")

    class Meta:
        db_table = "messaging_quarantine"
        constraints = [
            models.UniqueConstraint(
                fields=["consumer_group", "message_id", "body_sha256"],
                name="messaging_quarantine_message_uniq",
            ),
            models.CheckConstraint(
                condition=Q(status="OPEN", resolved_at__isnull=True)
                | Q(status="RESOLVED", resolved_at__isnull=False),
                name="messaging_quarantine_resolved_ck",
            ),
        ]
        indexes = [
            models.Index(
                fields=["consumer_group", "message_id"],
                condition=Q(status="OPEN"),
                name="messaging_quarantine_open_idx",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.consumer_group} {self.message_id}"


class GroupPause(models.Model):
    """A group that must not receive: set by the quarantine breaker or an operator."""

    consumer_group = models.CharField(max_length=120, primary_key=True)
    reason = models.TextField()
    paused_by = models.CharField(max_length=150)
    paused_at = models.DateTimeField(db_default=Now())

    class Meta:
        permissions = [("resume_group", "Can let a paused group receive again")]

    def __str__(self) -> str:
        return self.consumer_group


class Heartbeat(models.Model):
    """A worker process that lives: written every few seconds by its shell."""

    worker_id = models.CharField(max_length=120, primary_key=True)  # host:pid:role
    role = models.CharField(max_length=40)
    group = models.CharField(max_length=120, default="")
    build = models.IntegerField(default=1)
    version = models.CharField(max_length=40, default="")
    started_at = models.DateTimeField()
    beat_at = models.DateTimeField()
    state = models.CharField(max_length=24, default="RUNNING")
    detail = models.JSONField(default=dict)

    def __str__(self) -> str:
        return self.worker_id

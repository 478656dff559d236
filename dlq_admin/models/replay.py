"""Plans, approvals and replays. What may follow what, triggers check (`sql/0002_replay.sql`).

From PENDING_APPROVAL on a plan cannot change: the approval's composite foreign key names requester,
editor and plan_hash, and a trigger freezes the rest.
"""

from django.conf import settings
from django.db import models
from django.db.models import F, Max, OuterRef, Q, Subquery
from django.db.models.functions import Coalesce, Now

from dlq_admin.models.message import DlqMessage
from dlq_admin.models.ticket import Ticket
from dlq_admin.states import (
    BATCH_ACTIVE,
    ITEM_TERMINAL,
    BatchStatus,
    Disposition,
    ItemStatus,
)


def _choices(enum: type) -> list[tuple[str, str]]:
    return [(member.value, member.value) for member in enum]  # type: ignore[attr-defined]


class DryRun(models.Model):
    """What a replay of one message would do, and the rows that this was decided from."""

    message = models.ForeignKey(DlqMessage, on_delete=models.PROTECT, related_name="dry_runs")
    disposition = models.CharField(max_length=16, choices=_choices(Disposition))
    verdict = models.CharField(max_length=16)
    reason = models.CharField(max_length=64)
    snapshot = models.JSONField()  # ids, states, versions; no payload
    plan_hash = models.CharField(max_length=64)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+"
    )
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField()

    class Meta:
        db_table = "dlq_admin_dry_run"
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.verdict} {self.reason}"


class ReplayBatch(models.Model):
    """A frozen selection of dead messages of one ticket, and what is to be done with them."""

    ticket = models.ForeignKey(Ticket, on_delete=models.PROTECT, related_name="batches")
    consumer_group = models.CharField(max_length=120)
    disposition = models.CharField(max_length=16, choices=_choices(Disposition))
    status = models.CharField(
        max_length=24, choices=_choices(BatchStatus), default=BatchStatus.DRAFT
    )
    reason = models.TextField(default="")
    selection = models.JSONField(default=dict)  # what was asked for, how many matched, excluded why
    items_total = models.IntegerField(default=0)
    plan_hash = models.CharField(max_length=64, default="")
    rate_cap = models.IntegerField()  # messages a second, approved
    live_rate = models.IntegerField()  # the operator's, changeable while it runs
    governor_rate = models.IntegerField(null=True)  # what the governor leaves; null: no word
    canary_size = models.IntegerField(default=1)
    extension_s = models.IntegerField(default=0)  # extension rows that the approval writes; 0: none
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+"
    )
    edited_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+"
    )  # who edited a body; the requester when nobody did
    idempotency_key = models.CharField(max_length=64, unique=True)
    status_reason = models.TextField(default="")
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField()
    requested_at = models.DateTimeField(null=True)
    approved_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    resumed_at = models.DateTimeField(null=True)  # failures before it do not pause again
    finished_at = models.DateTimeField(null=True)
    closed_at = models.DateTimeField(null=True)  # all items have ended, the ticket was told

    class Meta:
        db_table = "dlq_admin_replay_batch"
        verbose_name_plural = "replay batches"
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(
                fields=["id", "requested_by", "edited_by", "plan_hash"],
                name="dlq_admin_replay_batch_plan_uniq",
            ),
            models.UniqueConstraint(
                fields=["consumer_group"],
                condition=Q(status__in=sorted(status.value for status in BATCH_ACTIVE)),
                name="dlq_admin_replay_batch_active_uniq",
            ),
            models.CheckConstraint(
                condition=Q(rate_cap__gte=1, rate_cap__lte=1_000)
                & Q(live_rate__gte=0)
                & Q(live_rate__lte=F("rate_cap")),
                name="dlq_admin_replay_batch_rate_ck",
            ),
            models.CheckConstraint(
                condition=Q(canary_size__gte=1, canary_size__lte=5),
                name="dlq_admin_replay_batch_canary_ck",
            ),
            models.CheckConstraint(
                condition=Q(extension_s__gte=0, extension_s__lte=86_400),
                name="dlq_admin_replay_batch_extension_ck",
            ),
        ]
        indexes = [
            models.Index(fields=["ticket", "-created_at"], name="dlq_admin_batch_ticket_idx"),
            models.Index(fields=["status"], name="dlq_admin_batch_status_idx"),
        ]

    def __str__(self) -> str:
        return f"batch {self.pk}"


class ReplayItem(models.Model):
    """One message of a batch. `body` is set when it was edited, else the dead message's is sent."""

    batch = models.ForeignKey(ReplayBatch, on_delete=models.PROTECT, related_name="items")
    position = models.IntegerField()
    message = models.ForeignKey(DlqMessage, on_delete=models.PROTECT, related_name="replays")
    replay_id = models.CharField(max_length=30, unique=True)  # rpl_ + ULID
    status = models.CharField(max_length=24, choices=_choices(ItemStatus), default=ItemStatus.DRAFT)
    verdict = models.CharField(max_length=16)
    verdict_reason = models.CharField(max_length=64)
    item_hash = models.CharField(max_length=64)
    payload_sha256 = models.CharField(max_length=64)
    body = models.BinaryField(null=True)
    edit_diff = models.JSONField(null=True)
    needs_extension = models.BooleanField(default=False)
    replay_count = models.IntegerField()  # people's replays of this message, this one included
    snapshot = models.JSONField(default=dict)
    outbox_id = models.BigIntegerField(null=True)
    outbox_created_at = models.DateTimeField(null=True)
    send_tries = models.IntegerField(default=0)
    status_reason = models.CharField(max_length=200, default="")
    evidence = models.JSONField(default=dict)
    claimed_at = models.DateTimeField(null=True)
    sent_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    changed_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "dlq_admin_replay_item"
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(
                fields=["batch", "position"], name="dlq_admin_replay_item_position_uniq"
            ),
            models.UniqueConstraint(
                fields=["message"],
                condition=~Q(status__in=sorted(status.value for status in ITEM_TERMINAL)),
                name="dlq_admin_replay_item_open_uniq",
            ),
            models.CheckConstraint(
                condition=Q(body__isnull=True, edit_diff__isnull=True)
                | Q(body__isnull=False, edit_diff__isnull=False),
                name="dlq_admin_replay_item_edit_ck",
            ),
            models.CheckConstraint(
                condition=Q(send_tries__gte=0, send_tries__lte=3),
                name="dlq_admin_replay_item_tries_ck",
            ),
        ]
        indexes = [models.Index(fields=["batch", "status"], name="dlq_admin_item_status_idx")]

    def __str__(self) -> str:
        return self.replay_id


class Approval(models.Model):
    """One person's yes to one plan. Insert-only; the database refuses one's own."""

    batch = models.ForeignKey(ReplayBatch, on_delete=models.PROTECT, related_name="approvals")
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+"
    )
    edited_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+"
    )
    plan_hash = models.CharField(max_length=64)
    approver = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+"
    )
    lead = models.BooleanField(default=False)  # with the incident lead's permission
    comment = models.TextField(default="")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "dlq_admin_approval"
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(
                fields=["batch", "approver"], name="dlq_admin_approval_approver_uniq"
            ),
            models.CheckConstraint(
                condition=~Q(approver=F("requested_by")) & ~Q(approver=F("edited_by")),
                name="dlq_admin_approval_not_own_ck",
            ),
        ]

    def __str__(self) -> str:
        return f"approval {self.pk} of batch {self.batch_id}"


class BreakGlass(models.Model):
    """A plan started before its approval. The database sets all times (sql/0006_glass.sql)."""

    batch = models.OneToOneField(ReplayBatch, on_delete=models.PROTECT, related_name="glass")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    plan_hash = models.CharField(max_length=64)
    reason = models.TextField()
    broken_at = models.DateTimeField(db_default=Now())
    due_at = models.DateTimeField(db_default=Now())  # an hour later
    approved_at = models.DateTimeField(null=True)  # when the approvals were complete

    class Meta:
        db_table = "dlq_admin_break_glass"
        verbose_name_plural = "broken glass"
        default_permissions = ()
        constraints = [
            models.CheckConstraint(condition=~Q(reason=""), name="dlq_admin_break_glass_reason_ck"),
        ]
        indexes = [
            models.Index(
                fields=["due_at"],
                condition=Q(approved_at__isnull=True),
                name="dlq_admin_break_glass_owed_idx",
            ),
        ]

    def __str__(self) -> str:
        return f"broken glass of batch {self.batch_id}"


class InvariantRun(models.Model):
    """A check of what a batch touched: evidence for VERIFIED and for closing the ticket."""

    ticket = models.ForeignKey(Ticket, on_delete=models.PROTECT, related_name="invariant_runs")
    batch = models.ForeignKey(
        ReplayBatch, null=True, on_delete=models.PROTECT, related_name="invariant_runs"
    )
    passed = models.BooleanField()
    checked = models.IntegerField()  # messages
    detail = models.JSONField(default=dict)  # breaches by kind
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "dlq_admin_invariant_run"
        default_permissions = ()
        indexes = [models.Index(fields=["ticket", "-created_at"], name="dlq_admin_invariant_idx")]

    def __str__(self) -> str:
        return "PASS" if self.passed else "FAIL"


def replays_made() -> Coalesce:
    """Return the column of dead messages that counts how often people replayed each (sent only)."""
    sent = ReplayItem.objects.filter(message=OuterRef("pk"), send_tries__gt=0)
    most = sent.order_by().values("message").annotate(most=Max("replay_count")).values("most")
    return Coalesce(Subquery(most), 0)

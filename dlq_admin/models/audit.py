"""The audit record: insert-only rows, a hash chain for each ticket, an hourly anchor over all.

Rows are numbered and hashed by a trigger of the database (`dlq_admin/sql/0002_audit.sql`), which
also refuses UPDATE, DELETE and TRUNCATE; the runtime role has no such right besides.
"""

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class AuditEvent(models.Model):
    """Something that happened to a ticket. `chain` is the ticket's number, 0 for no ticket."""

    chain = models.BigIntegerField()
    seq = models.BigIntegerField()  # 1, 2, 3 … in its chain; set by the trigger
    at = models.DateTimeField(db_default=Now())
    kind = models.CharField(max_length=48)
    actor = models.CharField(max_length=150)  # user name, or "system"
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        on_delete=models.PROTECT,
        related_name="+",
        db_index=False,
    )
    detail = models.TextField()  # canonical JSON: exactly the bytes that were hashed
    prev_hash = models.CharField(max_length=64)
    hash = models.CharField(max_length=64)

    class Meta:
        db_table = "dlq_admin_audit_event"
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["chain", "seq"], name="dlq_admin_audit_event_seq_uniq"),
            models.CheckConstraint(
                condition=Q(kind__regex=r"^[A-Z][A-Z0-9_]*$"), name="dlq_admin_audit_event_kind_ck"
            ),
        ]
        indexes = [models.Index(fields=["at"], name="dlq_admin_audit_event_at_idx")]

    def __str__(self) -> str:
        return f"{self.chain}.{self.seq} {self.kind}"


class AuditHead(models.Model):
    """Where each chain ends: written by the trigger only, so that a cut tail is found."""

    chain = models.BigIntegerField(primary_key=True)
    seq = models.BigIntegerField()
    hash = models.CharField(max_length=64)

    class Meta:
        db_table = "dlq_admin_audit_head"
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.chain}.{self.seq}"


class AuditAnchor(models.Model):
    """Once an hour: the ends of all chains that grew, chained themselves. Its hash is logged."""

    at = models.DateTimeField(db_default=Now())
    heads = models.TextField()  # canonical JSON: {"chain": [seq, hash], …}
    prev_hash = models.CharField(max_length=64)
    hash = models.CharField(max_length=64, unique=True)

    class Meta:
        db_table = "dlq_admin_audit_anchor"
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M} {self.hash[:12]}"

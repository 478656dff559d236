"""The row that declares a sale void: asked for by one person, approved by another."""

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now


class ActivityVoid(models.Model):
    """Audit record of both people. A withdrawn row stays; a new one may follow it."""

    activity_id = models.BigIntegerField()
    reason = models.TextField()
    requested_by = models.CharField(max_length=150)
    requested_at = models.DateTimeField(db_default=Now())
    approved_by = models.CharField(max_length=150, blank=True, default="")
    approved_at = models.DateTimeField(null=True, blank=True)
    withdrawn_by = models.CharField(max_length=150, blank=True, default="")
    withdrawn_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        """Two people, one open request a sale."""

        db_table = "orders_void"
        permissions = [
            ("request_void", "Can ask for a sale to be declared void"),
            ("approve_void", "Can approve that a sale is declared void"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["activity_id"],
                condition=Q(withdrawn_at__isnull=True),
                name="orders_void_activity_uniq",
            ),
            models.CheckConstraint(
                condition=Q(approved_by="", approved_at__isnull=True)
                | (
                    ~Q(approved_by="")
                    & ~Q(approved_by=F("requested_by"))
                    & Q(approved_at__isnull=False, withdrawn_at__isnull=True)
                ),
                name="orders_void_two_people_ck",
            ),
        ]

    def __str__(self) -> str:
        return f"void of activity {self.activity_id}"

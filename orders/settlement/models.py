"""The settlement of a sale: who settled it when, and the report as it was then."""

from django.db import models
from django.db.models.functions import Now


class Settlement(models.Model):
    """One row a settled sale. `report` is evidence: it is never computed again."""

    activity_id = models.BigIntegerField(primary_key=True)
    settled_at = models.DateTimeField(db_default=Now())
    settled_by = models.CharField(max_length=150)
    reason = models.TextField()
    report = models.JSONField()
    gate_deleted_at = models.DateTimeField(
        null=True, blank=True, help_text="When its keys were deleted from Redis."
    )

    class Meta:
        """One row a sale."""

        db_table = "orders_settlement"
        permissions = [
            ("settle_sale", "Can settle a closed sale"),
            ("view_report", "Can read and download settlement reports"),
        ]

    def __str__(self) -> str:
        return f"settlement of activity {self.activity_id}"

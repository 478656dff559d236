"""Rows of the rebuild: every run with its number, and the moving mark's counter."""

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from inventory.states import RebuildStatus


class RebuildRun(models.Model):
    """One run of `rebuild_gate`, or the note of a loss that waits for one. The audit record."""

    activity = models.ForeignKey(
        "inventory.Activity", on_delete=models.PROTECT, related_name="rebuild_runs"
    )
    number = models.PositiveBigIntegerField()
    status = models.CharField(
        max_length=12,
        choices=[(s.value, s.value) for s in RebuildStatus],
        default=RebuildStatus.RUNNING,
    )
    loss_noted = models.BooleanField(help_text="It began with a loss noted: it writes the mark.")
    forced = models.BooleanField(default=False, help_text="It did not wait for old reservations.")
    reason = models.TextField()
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+"
    )
    began_at = models.DateTimeField(db_default=Now())
    closed_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    found = models.JSONField(default=dict, help_text="What its transaction found and ended.")

    class Meta:
        """One row a number."""

        constraints = [
            models.UniqueConstraint(
                fields=["activity", "number"], name="inventory_rebuildrun_number_uniq"
            ),
            models.CheckConstraint(
                condition=Q(status="RUNNING", ended_at__isnull=True)
                | Q(status__in=["DONE", "OVERTAKEN"], ended_at__isnull=False),
                name="inventory_rebuildrun_ended_ck",
            ),
        ]
        permissions = [("rebuild_gate", "Can rebuild the gate of a sale")]

    def __str__(self) -> str:
        return f"rebuild {self.number} of activity {self.activity_id}"


class GateMark(models.Model):
    """The next number of a sale's moving mark: Redis holds it, or the one before.

    In a table of its own: it changes every second and must not meet the operators' changes.
    """

    activity = models.OneToOneField(
        "inventory.Activity", on_delete=models.PROTECT, primary_key=True, related_name="mark"
    )
    number = models.PositiveBigIntegerField(default=1)

    def __str__(self) -> str:
        return f"mark {self.number} of activity {self.activity_id}"

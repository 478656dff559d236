"""Runs of the reconciler and what they found: the audit record of every repair."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from orders.reconcile.difference import Action


class ReconcileRun(models.Model):
    """One run over one sale or all."""

    activity_id = models.BigIntegerField(null=True, blank=True, help_text="Empty: all sales.")
    repair = models.BooleanField(help_text="It repaired and ticketed; else it only looked.")
    started_by = models.CharField(max_length=150)
    started_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True, blank=True)
    found = models.PositiveIntegerField(default=0)
    repaired = models.PositiveIntegerField(default=0)
    ticketed = models.PositiveIntegerField(default=0)
    failed = models.JSONField(default=list, help_text="Looks that could not be finished.")

    class Meta:
        """Read by people, newest first."""

        db_table = "orders_reconcile_run"
        indexes = [models.Index(fields=["-started_at"], name="orders_reconcile_run_idx")]

    def __str__(self) -> str:
        return f"reconcile {self.pk}"


class ReconcileFinding(models.Model):
    """One difference of one run, and what was done about it in the same transaction."""

    run = models.ForeignKey(ReconcileRun, on_delete=models.CASCADE, related_name="findings")
    kind = models.CharField(max_length=40)
    activity_id = models.BigIntegerField(null=True, blank=True)
    subject = models.CharField(max_length=120)
    detail = models.TextField()
    action = models.CharField(
        max_length=8, choices=[(a.value, a.value) for a in Action], default=Action.REPORTED
    )
    note = models.TextField(blank=True, default="")

    class Meta:
        """One line for each difference of a run."""

        db_table = "orders_reconcile_finding"
        constraints = [
            models.CheckConstraint(
                condition=Q(action__in=[a.value for a in Action]),
                name="orders_reconcile_finding_action_ck",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.subject}"

"""Runs of the reconciler and their findings: evidence, read only."""

from django.contrib import admin

from evidence import Evidence
from orders.reconcile.models import ReconcileFinding, ReconcileRun


@admin.register(ReconcileRun)
class ReconcileRunAdmin(Evidence):
    """Runs, newest first."""

    list_display = (
        *("id", "started_at", "started_by", "activity_id", "repair"),
        *("found", "repaired", "ticketed", "finished_at"),
    )
    list_filter = ("repair",)
    ordering = ("-id",)


@admin.register(ReconcileFinding)
class ReconcileFindingAdmin(Evidence):
    """Findings, newest first; a run may have thousands, so they have pages of their own."""

    list_display = ("id", "run", "kind", "activity_id", "subject", "action", "note", "detail")
    list_filter = ("action", "kind")
    search_fields = ("=subject", "=run__id")
    ordering = ("-id",)
    list_select_related = ("run",)

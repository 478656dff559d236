"""Runs of the reconciler and their findings: evidence, read only."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from orders.reconcile.models import ReconcileFinding, ReconcileRun


class _Evidence:
    """Nobody adds, changes or deletes it here."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(ReconcileRun)
class ReconcileRunAdmin(_Evidence, admin.ModelAdmin):  # type: ignore[type-arg]
    """Runs, newest first."""

    list_display = (
        *("id", "started_at", "started_by", "activity_id", "repair"),
        *("found", "repaired", "ticketed", "finished_at"),
    )
    list_filter = ("repair",)
    ordering = ("-id",)
    show_full_result_count = False


@admin.register(ReconcileFinding)
class ReconcileFindingAdmin(_Evidence, admin.ModelAdmin):  # type: ignore[type-arg]
    """Findings, newest first; a run may have thousands, so they have pages of their own."""

    list_display = ("id", "run", "kind", "activity_id", "subject", "action", "note", "detail")
    list_filter = ("action", "kind")
    search_fields = ("=subject", "=run__id")
    ordering = ("-id",)
    list_select_related = ("run",)
    show_full_result_count = False

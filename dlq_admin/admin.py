"""Evidence in the admin's own lists: read only. The desk itself is at /admin/dlq/."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

import evidence
from dlq_admin import permissions
from dlq_admin.models.audit import AuditEvent
from dlq_admin.models.message import DlqMessage, DlqOccurrence, FailureGroup
from dlq_admin.models.replay import (
    Approval,
    BreakGlass,
    DryRun,
    InvariantRun,
    ReplayBatch,
    ReplayItem,
)
from dlq_admin.models.ticket import SlaClock, Ticket


class CappedPaginator(evidence.BoundedPaginator):
    """Counts no further than it shows."""

    most_rows = 1_000


class Evidence(evidence.Evidence):
    """Rows that nobody adds, changes or deletes by hand; seen with the console's own permission."""

    permission = permissions.VIEW_CONSOLE
    paginator = CappedPaginator
    ordering = ("-pk",)
    actions = None

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(self.permission)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(self.permission)


@admin.register(DlqMessage)
class DlqMessageAdmin(Evidence):
    list_display = (
        "message_id", "consumer_group", "status", "resolution", "error_class", "occurrence_count",
        "first_seen_at",
    )  # fmt: skip
    list_filter = ("status", "resolution")
    search_fields = ("message_id__startswith", "reservation_id__startswith")
    search_help_text = "the beginning of a message or reservation id"
    # A body is seen at the desk only, where looking at it is recorded.
    exclude = ("body", "properties", "user_id")


@admin.register(Ticket)
class TicketAdmin(Evidence):
    list_display = ("id", "title", "status", "severity", "owner", "assignee", "opened_at")
    list_filter = ("status", "severity")
    list_select_related = ("assignee",)
    raw_id_fields = ("merged_into",)


@admin.register(FailureGroup)
class FailureGroupAdmin(Evidence):
    list_display = ("consumer_group", "error_class", "sample", "message_count", "last_seen_at")


@admin.register(DlqOccurrence)
class DlqOccurrenceAdmin(Evidence):
    list_display = ("message", "source", "error_class", "delivery_attempt", "build", "died_at")
    list_select_related = ("message",)


@admin.register(SlaClock)
class SlaClockAdmin(Evidence):
    list_display = ("ticket", "kind", "started_at", "due_at", "breached_at", "stopped_at")
    list_filter = ("kind",)
    list_select_related = ("ticket",)


@admin.register(ReplayBatch)
class ReplayBatchAdmin(Evidence):
    list_display = ("id", "ticket", "disposition", "status", "items_total", "requested_by")
    list_filter = ("status", "disposition")
    list_select_related = ("ticket", "requested_by")


@admin.register(ReplayItem)
class ReplayItemAdmin(Evidence):
    list_display = ("replay_id", "batch", "message", "status", "verdict", "send_tries")
    list_filter = ("status",)
    list_select_related = ("batch", "message")
    exclude = ("body", "edit_diff")


@admin.register(DryRun)
class DryRunAdmin(Evidence):
    list_display = ("id", "message", "disposition", "verdict", "reason", "created_by", "created_at")
    list_select_related = ("message", "created_by")


@admin.register(Approval)
class ApprovalAdmin(Evidence):
    list_display = ("batch", "approver", "requested_by", "lead", "created_at")
    list_select_related = ("batch", "approver", "requested_by")


@admin.register(BreakGlass)
class BreakGlassAdmin(Evidence):
    list_display = ("batch", "user", "broken_at", "due_at", "approved_at")
    list_select_related = ("batch", "user")


@admin.register(InvariantRun)
class InvariantRunAdmin(Evidence):
    list_display = ("ticket", "batch", "passed", "checked", "created_at")
    list_filter = ("passed",)
    list_select_related = ("ticket", "batch")


@admin.register(AuditEvent)
class AuditEventAdmin(Evidence):
    permission = permissions.VIEW_AUDIT
    list_display = ("chain", "seq", "kind", "actor", "at", "hash")
    search_fields = ("=chain", "actor__exact", "kind__startswith")
    search_help_text = "a ticket's number, a user's name, or the beginning of a kind"

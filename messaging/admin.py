"""Read-only pages: inbox, outbox, quarantine, paused groups, workers. Fast lists, no totals.

All that can be done here is to pause a group and to let it go on (guarded services).
"""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from evidence import Evidence
from messaging import pauses
from messaging.masking import masked_body
from messaging.models import GroupPause, Heartbeat, InboxRow, OutboxRow, QuarantineRow
from messaging.topology import enabled_groups


@admin.register(InboxRow)
class InboxAdmin(Evidence):
    # No page for one row: Django's key is no key of the table. The list shows all of it.
    list_display_links = None
    list_display = (
        "message_id", "consumer_group", "outcome", "reason", "reservation_id", "order_id",
        "delivery_attempt", "created_at",
    )  # fmt: skip
    ordering = ("-consumer_group", "-message_id")  # the key, backwards: no sort
    search_fields = ("message_id__exact",)
    search_help_text = "a whole message id (evt_…)"


@admin.register(OutboxRow)
class OutboxAdmin(Evidence):
    list_display = (
        "event_id", "topic", "tag", "lane", "state", "attempts", "available_at", "sent_at",
        "last_error",
    )  # fmt: skip
    list_filter = ("state", "lane")
    ordering = ("-id",)
    search_fields = ("event_id__exact",)
    search_help_text = "a whole event id (evt_…)"
    exclude = ("payload",)
    readonly_fields = ("masked_payload",)

    @admin.display(description="payload (masked)")
    def masked_payload(self, row: OutboxRow) -> str:
        return masked_body(row.payload.encode())


@admin.register(QuarantineRow)
class QuarantineAdmin(Evidence):
    list_display = (
        "message_id", "consumer_group", "source", "status", "reason", "occurrences",
        "reservation_id", "first_at", "last_at",
    )  # fmt: skip
    list_filter = ("status", "source", "consumer_group")
    ordering = ("-id",)
    search_fields = ("message_id__exact", "reservation_id__exact")
    search_help_text = "a whole message or reservation id"
    exclude = ("body", "user_id")
    readonly_fields = ("masked_payload",)

    @admin.display(description="body (masked)")
    def masked_payload(self, row: QuarantineRow) -> str:
        return masked_body(bytes(row.body))


def _group_names() -> list[tuple[str, str]]:
    return [(group.name, group.name) for group in enabled_groups()]


class PauseForm(forms.ModelForm):  # type: ignore[type-arg]
    """Which group must not receive for a while, and why."""

    consumer_group = forms.ChoiceField(
        choices=_group_names,
        help_text="Its members stop receiving within a second; messages wait at the broker."
        " Reservations go on running out meanwhile.",
    )

    class Meta:
        model = GroupPause
        fields = ("consumer_group", "reason")


@admin.register(GroupPause)
class GroupPauseAdmin(Evidence):
    list_display = ("consumer_group", "reason", "paused_by", "paused_at")
    actions = ("let_go_on",)
    form = PauseForm

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_resume_permission(request)

    def save_model(self, request: HttpRequest, obj: GroupPause, form: Any, change: bool) -> None:
        """Pause through the service: it checks the right again, and logs who and why."""
        pauses.pause(group=obj.consumer_group, reason=obj.reason, user=request.user)

    def has_resume_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(pauses.PERMISSION)

    @admin.action(description="Let the selected groups receive again", permissions=["resume"])
    def let_go_on(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        for row in queryset:
            if pauses.resume(group=row.consumer_group, user=request.user):
                self.message_user(request, f"{row.consumer_group} goes on", messages.SUCCESS)


@admin.register(Heartbeat)
class HeartbeatAdmin(Evidence):
    list_display = ("worker_id", "role", "group", "build", "state", "beat_at", "detail")
    list_filter = ("role", "state")
    ordering = ("-beat_at",)

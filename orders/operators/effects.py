"""Effects of paid orders, mails, and the read model."""

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from orders import notifications
from orders.models import EffectRow, Notification, OrderQueryRow
from orders.operators.read_only import Evidence


@admin.register(EffectRow)
class EffectRowAdmin(Evidence):
    """What each group made of each fact."""

    story_field = "source_id"
    list_display = (
        "consumer_group", "source_type", "source_id", "rule_version", "value", "unit", "user_id",
        "created_at", "story",
    )  # fmt: skip
    list_filter = ("consumer_group", "source_type")
    search_fields = ("source_id__exact",)
    search_help_text = "a whole order id"
    ordering = ("-id",)


@admin.register(Notification)
class NotificationAdmin(Evidence):
    """Mails. UNKNOWN ones may have arrived: only a person sends them again."""

    story_field = "source_id"
    list_display = (
        "id", "source_type", "source_id", "user_id", "status", "tries", "error", "created_at",
        "sent_at", "story",
    )  # fmt: skip
    list_filter = ("status", "source_type")
    search_fields = ("source_id__exact", "user_id__exact")
    search_help_text = "a whole order or user id"
    ordering = ("-id",)
    actions = ("send_again",)

    def has_resend_permission(self, request: HttpRequest) -> bool:
        """Who may send a mail again."""
        return request.user.has_perm(notifications.RESEND_PERMISSION)

    @admin.action(description="Send again (I know that it did not arrive)", permissions=["resend"])
    def send_again(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Queue UNKNOWN and FAILED mails again; others are left alone."""
        done = sum(
            notifications.send_again(notification_id=row.pk, user=request.user) for row in queryset
        )
        self.message_user(
            request, f"{done} queued again", messages.SUCCESS if done else messages.WARNING
        )


@admin.register(OrderQueryRow)
class OrderQueryRowAdmin(Evidence):
    """The read model: searches that the order transaction must not pay indexes for."""

    list_display = (
        "order_id", "user_id", "activity_id", "sku_id", "quantity", "amount_cents", "currency",
        "status", "reason", "created_at", "aggregate_version", "story",
    )  # fmt: skip
    list_filter = ("status", "reason")
    search_fields = ("order_id__exact", "user_id__exact", "=activity_id")
    search_help_text = "a whole order id, user id, or an activity's number"
    ordering = ("-order_id",)

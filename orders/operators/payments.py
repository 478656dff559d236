"""Payment attempts, refunds and webhooks."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.urls import URLPattern, path

from orders.models import PaymentAttempt, Refund, WebhookEvent
from orders.operators import acts
from orders.operators.read_only import Evidence, story_link


@admin.register(PaymentAttempt)
class PaymentAttemptAdmin(Evidence):
    """Attempts to pay, open ones first to be found by their status."""

    list_display = (
        "attempt_id", "order_id", "attempt_no", "status", "amount_cents", "currency", "provider",
        "tries", "error_class", "created_at", "settled_at", "story",
    )  # fmt: skip
    list_filter = ("status", "provider")
    search_fields = ("attempt_id__exact", "order__order_id__exact", "provider_payment_id__exact")
    search_help_text = "a whole attempt id, order id or provider's payment id"
    ordering = ("-attempt_id",)

    def get_urls(self) -> list[URLPattern]:
        """Add what may be done to one that captured another amount."""
        outside = self.admin_site.admin_view(acts.attempt_outside)
        return [
            path("<str:attempt_id>/outside/", outside, name="orders_attempt_outside"),
            *super().get_urls(),
        ]

    def acts(self, row: Any, request: HttpRequest) -> list[tuple[str, str]]:
        """Settle one that captured another amount."""
        return acts.acts_on_attempt(row, request.user)


@admin.register(Refund)
class RefundAdmin(Evidence):
    """Refunds: DUE ones are driven by the scanner, FAILED ones wait for a person."""

    list_display = (
        "refund_id", "order_id", "status", "reason", "amount_cents", "currency", "restock",
        "requested_by", "tries", "error_class", "created_at", "settled_at", "story",
    )  # fmt: skip
    list_filter = ("status", "reason", "provider")
    search_fields = ("refund_id__exact", "order__order_id__exact", "provider_refund_id__exact")
    search_help_text = "a whole refund id, order id or provider's refund id"
    ordering = ("-refund_id",)

    def get_urls(self) -> list[URLPattern]:
        """Add what may be done to a stuck one."""
        retry = self.admin_site.admin_view(acts.retry)
        outside = self.admin_site.admin_view(acts.refund_outside)
        return [
            path("<str:refund_id>/retry/", retry, name="orders_refund_retry"),
            path("<str:refund_id>/outside/", outside, name="orders_refund_outside"),
            *super().get_urls(),
        ]

    def acts(self, row: Any, request: HttpRequest) -> list[tuple[str, str]]:
        """Try a failed one again, or say that it was settled elsewhere."""
        return acts.acts_on_refund(row, request.user)


@admin.register(WebhookEvent)
class WebhookEventAdmin(Evidence):
    """Webhooks with a good signature; PARKED ones came before their payment."""

    list_display = (
        "event_id", "provider", "kind", "subject", "status", "reason", "tries", "received_at",
        "story",
    )  # fmt: skip
    list_filter = ("status", "kind", "provider")
    search_fields = ("event_id__exact", "subject__exact")
    search_help_text = "a whole event id, or the attempt or refund that it names"
    ordering = ("-id",)
    exclude = ("raw_body",)

    @admin.display(description="story")
    def story(self, row: Any) -> str:
        """Link by the attempt or refund that the webhook names."""
        return story_link(row.subject)

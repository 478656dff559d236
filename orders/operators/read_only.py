"""Rows of a purchase: the link to its story, and what may be done to a row."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html

import evidence


class Evidence(evidence.Evidence):
    """Rows that only services write. `story_field` names the id that leads to the story."""

    story_field = "order_id"
    change_form_template = "admin/orders/row.html"

    def acts(self, row: Any, request: HttpRequest) -> list[tuple[str, str]]:
        """Return name and address of what this user may do to the row now; mostly nothing."""
        return []

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Show the row, with what may be done to it."""
        row = kwargs.get("obj")
        context["acts"] = self.acts(row, request) if row is not None else []
        return super().render_change_form(request, context, *args, **kwargs)

    @admin.display(description="story")
    def story(self, row: Any) -> str:
        """Link the row to the whole story of its purchase."""
        return story_link(getattr(row, self.story_field))


def story_link(any_id: str) -> str:
    """Return a link to the story of a purchase; empty without an id."""
    if not any_id:
        return ""
    return format_html('<a href="{}">story</a>', reverse("admin:orders_story", args=[any_id]))

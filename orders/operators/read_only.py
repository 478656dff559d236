"""What every list of evidence shares, and the link from a row to its purchase's story."""

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.functional import cached_property
from django.utils.html import format_html

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = admin.ModelAdmin


class BoundedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts no further than it shows: a count of millions of orders would read them all."""

    most_rows = 5_000

    @cached_property
    def count(self) -> int:
        """Rows, up to `most_rows`."""
        rows: Any = self.object_list
        return len(rows.values_list("pk", flat=True)[: self.most_rows])


class Evidence(_ModelAdmin):
    """Rows that only services write. `story_field` names the id that leads to the story."""

    show_full_result_count = False
    paginator = BoundedPaginator
    list_per_page = 50
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

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody adds evidence."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody changes evidence."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody deletes evidence."""
        return False

    @admin.display(description="story")
    def story(self, row: Any) -> str:
        """Link the row to the whole story of its purchase."""
        return story_link(getattr(row, self.story_field))


def story_link(any_id: str) -> str:
    """Return a link to the story of a purchase; empty without an id."""
    if not any_id:
        return ""
    return format_html('<a href="{}">story</a>', reverse("admin:orders_story", args=[any_id]))

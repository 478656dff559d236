"""What every list of evidence shares, and the link from a row to its purchase's story."""

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.core.paginator import Paginator
from django.http import HttpRequest
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

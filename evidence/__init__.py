"""Admin lists of rows that only services write: fast on tables of any size, and nothing to change.

Below all apps, for each of them has such lists (`Evidence`).
"""

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.core.paginator import Paginator
from django.http import HttpRequest
from django.utils.functional import cached_property

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = admin.ModelAdmin


class BoundedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts no further than it shows: a count of millions of rows would read them all."""

    most_rows = 5_000

    @cached_property
    def count(self) -> int:
        """Rows, up to `most_rows`."""
        rows: Any = self.object_list
        return len(rows.values_list("pk", flat=True)[: self.most_rows])


class Unwritable:
    """Nobody adds, changes or deletes these rows by hand: for pages, and for rows inside a page."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Only services add."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Only services change."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Only services delete."""
        return False


class Evidence(Unwritable, _ModelAdmin):
    """A list of rows that only services write, without a count of all of them."""

    show_full_result_count = False
    paginator = BoundedPaginator
    list_per_page = 50

"""What all lists of the admin share."""

from django.contrib import admin

from evidence import BoundedPaginator, Evidence, Unwritable

APPS = ("seckill", "orders", "inventory", "messaging", "dlq_admin")
PAGES = [page for model, page in admin.site._registry.items() if model._meta.app_label in APPS]


def test_no_list_counts_a_whole_table() -> None:
    counting = [
        type(page).__name__
        for page in PAGES
        if page.show_full_result_count or not issubclass(page.paginator, BoundedPaginator)
    ]
    assert counting == ["ActivityAdmin"]  # sales are few


def test_nobody_writes_evidence() -> None:
    # what a page of evidence lets people do, it does by a service
    kinds = [type(page) for page in PAGES if isinstance(page, Evidence)]
    assert len(kinds) > 20
    for name in ("has_change_permission", "has_delete_permission"):
        own = [kind for kind in kinds if getattr(kind, name) is not getattr(Unwritable, name)]
        assert own == []


def test_a_bounded_list_knows_its_last_page() -> None:
    class Rows(list[int]):
        def values_list(self, *fields: str, flat: bool) -> list[int]:
            return self

    assert BoundedPaginator(Rows(range(120)), 50).num_pages == 3
    assert BoundedPaginator(Rows(range(6_000)), 50).count == 5_000

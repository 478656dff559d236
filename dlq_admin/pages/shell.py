"""What every page of the console has around it."""

from typing import Any, Final

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse

from dlq_admin.selectors import counts

# Address, name, key after g.
_NAV: Final = (
    ("inbox", "Inbox", "i"),
    ("approvals", "Approvals", "a"),
    ("batches", "Batches", "b"),
    ("quarantine", "Quarantine", "q"),
    ("outbox", "Outbox", "o"),
    ("inbox_rows", "Inbox rows", "r"),
    ("audit", "Audit", "u"),
    ("me", "My permissions", "m"),
)


def context(request: HttpRequest, *, title: str, here: str = "", **more: Any) -> dict[str, Any]:
    """Return a template's context.

    Args:
        request: of the page.
        title: of the page.
        here: which entry of the navigation this is.
        more: the page's own; a page that also answers a POST gives its `page_url`, since its links
            would be relative to the act's address.

    Cost: one statement, for the numbers beside the navigation.
    """
    badges = {} if request.headers.get("X-Console-Part") else counts.badges()
    return {
        **admin.site.each_context(request),
        "is_nav_sidebar_enabled": False,  # the console needs the width
        "title": title,
        "console_nav": [
            {
                "url": reverse(f"dlq:{name}"),
                "name": label,
                "key": key,
                "here": name == here,
                "count": badges.get(name, ""),
            }
            for name, label, key in _NAV
        ],
        **more,
    }

"""Read-only page: what the governor decided, and from which numbers."""

import json

from django.contrib import admin
from django.utils.html import format_html
from django.utils.safestring import SafeString

from evidence import Evidence
from seckill.governor.models import GovernorDecision


@admin.register(GovernorDecision)
class DecisionAdmin(Evidence):
    list_display = (
        "decided_at", "level", "before", "entry_rate", "entry_burst", "why", "lag_s", "drain",
    )  # fmt: skip
    list_filter = ("level",)
    ordering = ("-decided_at", "-pk")
    readonly_fields = (
        "decided_at", "level", "before", "entry_rate", "entry_burst", "max_open", "max_pending",
        "drain_per_s", "why", "paces", "numbers", "leader",
    )  # fmt: skip
    fields = readonly_fields

    @admin.display(description="reasons")
    def why(self, row: GovernorDecision) -> str:
        """Return all reasons in one line."""
        return "; ".join(row.reasons)

    @admin.display(description="lag (s)")
    def lag_s(self, row: GovernorDecision) -> object:
        """Return the order group's lag."""
        return row.signals.get("lag_s", "")

    @admin.display(description="orders/s")
    def drain(self, row: GovernorDecision) -> object:
        """Return what the order group settled."""
        return row.signals.get("drain_per_s", "")

    @admin.display(description="workers and batches")
    def paces(self, row: GovernorDecision) -> SafeString:
        """Show the groups' paces."""
        return _pretty(row.groups)

    @admin.display(description="signals")
    def numbers(self, row: GovernorDecision) -> SafeString:
        """Show the numbers it was made from."""
        return _pretty(row.signals)


def _pretty(value: object) -> SafeString:
    return format_html("<pre>{}</pre>", json.dumps(value, indent=1, sort_keys=True))

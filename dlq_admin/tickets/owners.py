"""Whose ticket it is, and how bad: by rule (pure)."""

from dataclasses import dataclass
from typing import Final

from dlq_admin.states import Severity
from messaging.topology import (
    CG_AUDIT,
    CG_INVENTORY_COMPENSATE,
    CG_INVOICE,
    CG_NOTIFY,
    CG_ORDER_CREATE,
    CG_ORDER_PROJECTION,
    CG_ORDER_TIMEOUT,
    CG_POINTS,
    CG_RISK,
    CG_SETTLEMENT,
    GROUPS,
)

ON_CALL: Final = "on-call"
_CORE: Final = frozenset(group.name for group in GROUPS if group.core)


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnerRule:
    """Empty fields match everything."""

    owner: str
    group: str = ""
    topic: str = ""
    error_class: str = ""

    def matches(self, *, group: str, topic: str, error_class: str) -> bool:
        """Tell whether the rule is about such a death."""
        return all(
            not wanted or wanted == found
            for wanted, found in (
                (self.group, group),
                (self.topic, topic),
                (self.error_class, error_class),
            )
        )


# The first that matches; on-call when none does.
RULES: Final[tuple[OwnerRule, ...]] = (
    OwnerRule(owner="platform", error_class="DEAD_LETTER"),
    OwnerRule(owner="platform", group="OUTBOX"),
    OwnerRule(owner="orders", group=CG_ORDER_CREATE),
    OwnerRule(owner="orders", group=CG_ORDER_TIMEOUT),
    OwnerRule(owner="orders", group=CG_ORDER_PROJECTION),
    OwnerRule(owner="inventory", group=CG_INVENTORY_COMPENSATE),
    OwnerRule(owner="finance", group=CG_SETTLEMENT),
    OwnerRule(owner="finance", group=CG_INVOICE),
    OwnerRule(owner="marketing", group=CG_POINTS),
    OwnerRule(owner="marketing", group=CG_NOTIFY),
    OwnerRule(owner="risk", group=CG_RISK),
    OwnerRule(owner="platform", group=CG_AUDIT),
)


def owner_of(*, group: str, topic: str, error_class: str) -> str:
    """Return the team that a new ticket belongs to."""
    for rule in RULES:
        if rule.matches(group=group, topic=topic, error_class=error_class):
            return rule.owner
    return ON_CALL


def severity_of(*, group: str, in_sale: bool) -> Severity:
    """Return how bad it is: a core group while its sale runs is worst."""
    core = group in _CORE
    if core and in_sale:
        return Severity.SEV1
    return Severity.SEV2 if core or in_sale else Severity.SEV3

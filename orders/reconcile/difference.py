"""What a difference is, and what may be done about its kind."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from inventory.selectors import ActivityRecord


class Action(StrEnum):
    """What a run did about a difference."""

    REPORTED = "REPORTED"  # it only looked
    REPAIRED = "REPAIRED"
    TICKET = "TICKET"  # a quarantine item was opened
    KNOWN = "KNOWN"  # its item was open already
    GONE = "GONE"  # it was not there any more when it was to be repaired
    FAILED = "FAILED"  # the repair raised; the next run tries again


class Outcome(StrEnum):
    """Answer of a repair."""

    REPAIRED = "REPAIRED"
    GONE = "GONE"
    UNPROVEN = "UNPROVEN"  # it cannot be proven to be right: a ticket


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """Two stores tell different things about `subject` (an id, or a SKU)."""

    kind: str
    activity_id: int | None
    subject: str
    detail: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scope:
    """What a run looks at: one sale, or all that left DRAFT. `serving` have a gate."""

    activity_id: int | None
    sales: Sequence[ActivityRecord]
    serving: Sequence[ActivityRecord]


Find = Callable[[Scope], Sequence[Difference]]

# Runs inside the transaction that writes the audit row; repeats its check under a lock.
Repair = Callable[[Difference], Outcome]


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """A class of difference: the rule that does not hold, and its repair when one is provable.

    `seen_by` names the finder whose look over all sales always finds a difference of this kind, as
    long as it is there. Other looks leave out what is too old, too much, or not served now: that
    they do not see a difference does not say that it is gone.
    """

    rule: str
    repair: Repair | None = None
    seen_by: str = ""

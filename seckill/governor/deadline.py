"""What is done, and in which order, when a backlog comes near its reservations' end (no I/O).

The reservation's validity is never extended: what cannot make it is refused at the door, early.
Source: docs/governor.md, "A backlog near the deadline".
"""

from enum import StrEnum

from seckill.governor.signals import Database


class Step(StrEnum):
    """The measures, in their order; a later one never comes without the earlier ones."""

    TIGHTEN_GATE = "TIGHTEN_GATE"  # lower entry, max_open and max_pending
    CHECK_DATABASE = "CHECK_DATABASE"  # the next step depends on it
    ADD_CONSUMERS = "ADD_CONSUMERS"  # only with headroom
    SLOW_SIDE_GROUPS = "SLOW_SIDE_GROUPS"
    KEEP_KEYS = "KEEP_KEYS"  # keys outlive the sale by 7 days: nothing to lengthen
    REJECT_EARLY = "REJECT_EARLY"  # no new reservation: it could not make it
    SPREAD_COMPENSATION = "SPREAD_COMPENSATION"  # releases in smaller batches


def steps(*, expiring: int, lag_high: bool, database: Database, headroom: bool) -> tuple[Step, ...]:
    """Return the measures in force, in their order.

    Args:
        expiring: open reservations, not held, with under half of their validity left.
        lag_high: the order group is behind.
        database: the verdict.
        headroom: consumers can still be added within the budget.
    """
    if expiring <= 0 or not lag_high:
        return ()
    can_grow = headroom and database is Database.HEALTHY
    taken = [Step.TIGHTEN_GATE, Step.CHECK_DATABASE]
    if can_grow:
        taken.append(Step.ADD_CONSUMERS)
    taken += [Step.SLOW_SIDE_GROUPS, Step.KEEP_KEYS]
    if not can_grow:
        taken += [Step.REJECT_EARLY, Step.SPREAD_COMPENSATION]
    return tuple(taken)

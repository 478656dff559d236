"""How many orders a second the consumers make, learned while they work (no I/O)."""

from typing import Final

from seckill.governor.memory import Means
from seckill.governor.signals import Database, Limits, Signals
from seckill.governor.view import Level

_NEWS: Final = 0.3  # weight of the last second
# A second, while all goes well at the limit. Steps of a tenth overshoot by half before the lag
# shows, and end in THROTTLE: under a crowd that stays, a tenth of the orders was lost to that.
_PROBE: Final = 1.02
_AT_LIMIT: Final = 0.8


def learn(
    *,
    capacity: float,
    level: Level,
    entry_rate: float,
    signals: Signals,
    database: Database,
    limits: Limits,
    means: Means,
) -> float:
    """Return the capacity after one more second.

    Measured only while a backlog waits (otherwise the arrivals are measured) and the database
    answers. An entry at its limit that makes no backlog is proof that more would do: then it rises
    by a fiftieth a second, or a capacity measured in a bad minute would hold for ever. Only an
    entry near the capacity proves that, not one that a stricter level or the operators keep below.

    Args:
        capacity: known so far; 0 for unknown.
        level: that was in force.
        entry_rate: what was let in; 0 for no limit.
        signals: the last second.
        database: its verdict.
        limits: where lag begins.
        means: with the operators' own measurement to start from.
    """
    known = capacity or means.drain_per_s
    if database is Database.STALLED or not signals.receiving:
        return known
    if signals.lag_s > limits.lag_calm_s:
        if signals.busy_per_s <= 0:
            return known
        return (
            signals.busy_per_s if known <= 0 else ((1 - _NEWS) * known + _NEWS * signals.busy_per_s)
        )
    at_limit = entry_rate > 0 and signals.arrival_per_s >= _AT_LIMIT * entry_rate
    near_capacity = level is Level.NORMAL and not 0 < means.entry_rate <= entry_rate
    if known > 0 and at_limit and near_capacity and database is Database.HEALTHY:
        return known * _PROBE
    return known

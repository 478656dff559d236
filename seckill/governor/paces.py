"""Workers and batches of each group: the order group within its budget, the others after it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from seckill.governor.budget import Budget
from seckill.governor.levels import at_least
from seckill.governor.memory import Means, Memory
from seckill.governor.signals import Database, Limits
from seckill.governor.view import GroupPace, Level

_LEAST_SHARE: Final = 0.25
_SHRINK_EVERY_S: Final = 2.0


def follow_workers(
    memory: Memory,
    *,
    database: Database,
    budget: Budget,
    instances: int,
    lag_high: bool,
    receiving: bool,
    limits: Limits,
    now_s: float,
) -> Memory:
    """Return the memory with the order group's workers and batch share of the next second.

    Args:
        memory: of the last decision; its level is the new one already.
        database: the verdict.
        budget: the order group's.
        instances: its live processes.
        lag_high: it is behind.
        receiving: the broker answers it.
        limits: sizes of steps.
        now_s: monotonic.
    """
    least, most = float(max(1, instances)), float(budget.per_instance * max(1, instances))
    workers = min(max(memory.workers, least), most)
    if database is Database.STALLED:
        return replace(memory, workers=least, batch_share=_LEAST_SHARE, stepped_s=now_s)
    if not receiving:  # what waits at the broker must not come back as a flood
        return replace(memory, workers=least, batch_share=0.5, stepped_s=now_s)
    may_step = now_s - memory.stepped_s >= limits.step_s
    may_shrink = now_s - memory.shrunk_s >= _SHRINK_EVERY_S
    if database is Database.POOL_EXHAUSTED:
        if not may_shrink:
            return replace(memory, workers=workers)
        return replace(memory, workers=max(least, workers - least), shrunk_s=now_s, stepped_s=now_s)
    if database is Database.LOADED and not lag_high:
        if not may_shrink:
            return replace(memory, workers=workers)
        share = max(_LEAST_SHARE, memory.batch_share / 2)
        return replace(
            memory,
            workers=max(least, workers - 1),
            batch_share=share,
            shrunk_s=now_s,
            stepped_s=now_s,
        )
    if database is not Database.HEALTHY or not may_step:
        return replace(memory, workers=workers)
    share = min(1.0, memory.batch_share * 2)
    if lag_high and workers < most:
        more = max(1.0, limits.step * budget.total)
        return replace(
            memory, workers=min(most, workers + more), batch_share=share, stepped_s=now_s
        )
    if share != memory.batch_share:
        return replace(memory, workers=workers, batch_share=share, stepped_s=now_s)
    return replace(memory, workers=workers)


def paces(
    memory: Memory,
    *,
    database: Database,
    instances: int,
    lag_high: bool,
    means: Means,
) -> Mapping[str, GroupPace]:
    """Return the pace of every group: orders first, core groups next, side groups last."""
    batch = means.batch_max
    uneasy = database is not Database.HEALTHY
    side_waits = lag_high or database is Database.STALLED or at_least(memory.level, Level.HOLD)
    found: dict[str, GroupPace] = {}
    for name, core in means.groups:
        if name == means.order_group:
            found[name] = GroupPace(
                workers=max(1, int(memory.workers) // max(1, instances)),
                batch=max(1, int(batch * memory.batch_share)),
            )
        elif name == means.compensate_group:
            spread = uneasy or at_least(memory.level, Level.THROTTLE)
            found[name] = GroupPace(workers=1, batch=max(1, batch // (4 if spread else 1)))
        elif core:
            found[name] = GroupPace(workers=1, batch=max(1, batch // (2 if uneasy else 1)))
        elif side_waits:
            found[name] = GroupPace(workers=0, batch=batch)
        else:
            found[name] = GroupPace(workers=1, batch=max(1, batch // (4 if uneasy else 1)))
    return found

"""Which level the signals ask for, and how it follows from the last one (no I/O)."""

from dataclasses import dataclass, replace
from typing import Final

from seckill.governor.deadline import Step
from seckill.governor.memory import Means, Memory
from seckill.governor.signals import Database, Limits, Signals
from seckill.governor.view import Level

_SEVERITY: Final = {level: place for place, level in enumerate(Level)}
THROTTLED_SHARE: Final = 0.7  # where a ramp after a mere THROTTLE begins


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """A level and why; `trouble` when a store or the broker is away."""

    level: Level
    reasons: tuple[str, ...]
    trouble: bool = False


def at_least(level: Level, other: Level) -> bool:
    """Tell whether `level` is as strict as `other`, or stricter."""
    return _SEVERITY[level] >= _SEVERITY[other]


def wanted(
    signals: Signals,
    *,
    database: Database,
    lag_high: bool,
    headroom: bool,
    stalled_s: float,
    steps: tuple[Step, ...],
    means: Means,
    limits: Limits,
) -> Wanted:
    """Return the strictest level that a signal asks for, with every reason for it."""
    asks: list[tuple[Level, str, bool]] = []

    def ask(when: bool, level: Level, reason: str, *, trouble: bool = False) -> None:
        if when:
            asks.append((level, reason, trouble))

    stalled = database is Database.STALLED
    ask(
        stalled and stalled_s > limits.closed_after_s,
        Level.FAIL_CLOSED,
        f"DATABASE_STALLED: for {stalled_s:.0f} s",
        trouble=True,
    )
    ask(
        Step.REJECT_EARLY in steps,
        Level.FAIL_CLOSED,
        f"BACKLOG_NEAR_DEADLINE: {signals.expiring} open with under half of their validity left",
    )
    ask(
        not signals.receiving and signals.instances > 0,
        Level.HOLD,
        "BROKER_AWAY: no consumer is answered",
        trouble=True,
    )
    ask(
        signals.pending_oldest_s > limits.pending_critical_s,
        Level.HOLD,
        f"SENDS_LATE: oldest overdue by {signals.pending_oldest_s:.1f} s",
        trouble=True,
    )
    ask(
        signals.lag_s > 2 * means.slo_s and signals.instances > 0,
        Level.HOLD,
        f"LAG_BEYOND_SLO: {signals.lag_s:.1f} s",
    )
    ask(stalled, Level.THROTTLE, f"DATABASE_STALLED: for {stalled_s:.0f} s", trouble=True)
    ask(
        signals.instances == 0 and signals.backlog > 0,
        Level.THROTTLE,
        f"NO_CONSUMER: {signals.backlog} reservations wait",
        trouble=True,
    )
    ask(
        signals.pending_oldest_s > limits.pending_high_s,
        Level.THROTTLE,
        f"SENDS_LATE: oldest overdue by {signals.pending_oldest_s:.1f} s",
    )
    ask(
        signals.lag_s >= limits.lag_critical_s,
        Level.THROTTLE,
        f"LAG_CRITICAL: {signals.lag_s:.1f} s",
    )
    ask(
        signals.gate_age_s > limits.gate_age_s,
        Level.THROTTLE,
        f"GATE_UNREAD: for {signals.gate_age_s:.0f} s",
        trouble=True,
    )
    ask(
        database is Database.WAL_SATURATED,
        Level.THROTTLE,
        f"WAL_SATURATED: {signals.wal_per_s / 2**20:.0f} MiB/s, {signals.wal_waits} wait",
    )
    ask(
        lag_high and database is Database.POOL_EXHAUSTED,
        Level.THROTTLE,
        f"POOL_EXHAUSTED: wait p95 {signals.pool_wait_p95_ms:.0f} ms",
    )
    ask(
        lag_high and not headroom,
        Level.THROTTLE,
        f"LAG_HIGH: {signals.lag_s:.1f} s and no headroom",
    )
    if not asks:
        text = (f"LAG_HIGH: {signals.lag_s:.1f} s, consumers are added",) if lag_high else ()
        return Wanted(level=Level.NORMAL, reasons=text)
    level = max((level for level, _, _ in asks), key=_SEVERITY.__getitem__)
    return Wanted(
        level=level,
        reasons=tuple(dict.fromkeys(reason for _, reason, _ in asks)),
        trouble=any(trouble for _, _, trouble in asks),
    )


def follow(memory: Memory, want: Wanted, *, lag_high: bool, limits: Limits, now_s: float) -> Memory:
    """Return the memory with the level that follows: up at once, down only after calm.

    Down from anything stricter than RAMP leads to RAMP: a quarter of the capacity after trouble,
    most of it after a mere throttling, a tenth more every few seconds while nothing lags.
    """
    troubled = memory.troubled or want.trouble
    goal = want.level
    if goal is Level.NORMAL and lag_high and at_least(memory.level, Level.THROTTLE):
        goal = Level.THROTTLE
    if goal is not Level.NORMAL and at_least(goal, memory.level):
        return replace(memory, level=goal, calm_since_s=None, troubled=troubled)
    if memory.level is Level.NORMAL:
        return replace(memory, troubled=False)
    if memory.level is Level.RAMP and goal is Level.NORMAL:
        return _climb(memory, lag_high=lag_high, limits=limits, now_s=now_s)
    since = now_s if memory.calm_since_s is None else memory.calm_since_s
    if now_s - since < limits.calm_s:
        return replace(memory, calm_since_s=since, troubled=troubled)
    if goal is not Level.NORMAL:
        return replace(memory, level=goal, calm_since_s=None, troubled=troubled)
    return replace(
        memory,
        level=Level.RAMP,
        calm_since_s=None,
        ramp=limits.ramp_start if troubled else THROTTLED_SHARE,
        stepped_s=now_s,
        troubled=troubled,
    )


def _climb(memory: Memory, *, lag_high: bool, limits: Limits, now_s: float) -> Memory:
    if lag_high or now_s - memory.stepped_s < limits.step_s:
        return memory
    ramp = memory.ramp + limits.step
    if ramp < 1 - 1e-9:
        return replace(memory, ramp=ramp, stepped_s=now_s)
    return replace(memory, level=Level.NORMAL, ramp=1.0, troubled=False, stepped_s=now_s)

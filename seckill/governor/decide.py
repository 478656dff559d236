"""The decision: signals and memory in, view and memory out (no I/O, no clock).

    lag      database         act
    high     healthy          more consumers, up to the budget, a tenth of it every 5 s
    high     pool exhausted   fewer for each process
    high     WAL saturated    throttle entry
    low      loaded           fewer workers, smaller batches
    jumped   broker just back slow ramp
    high, reservations near their end, no headroom: fail closed

Entry is bounded before anything lags: at nine tenths of what the consumers are known to drain, with
a burst that they work off within a quarter of the SLO. Feedback alone would be seconds late.
Source: docs/governor.md.
"""

from dataclasses import replace
from typing import Any, Final

from seckill.governor.budget import budget
from seckill.governor.capacity_learned import learn
from seckill.governor.deadline import Step, steps
from seckill.governor.levels import Wanted, at_least, follow, wanted
from seckill.governor.memory import Means, Memory
from seckill.governor.paces import follow_workers, paces
from seckill.governor.signals import LIMITS, Database, Limits, Signals, judge_database
from seckill.governor.view import GovernorView, Level

_STEADY_SHARE: Final = 0.9
_THROTTLE_SHARE: Final = 0.7
_CRITICAL_SHARE: Final = 0.4
_HOLD_SHARE: Final = 0.05
# A crowd at the door costs the consumers CPU: a capacity known from a quiet hour may be half too
# high, and the burst must still become orders in time.
_BURST_OF_SLO: Final = 0.25
_LEAST_OPEN: Final = 100


def decide(
    signals: Signals, memory: Memory, *, means: Means, now_s: float, limits: Limits = LIMITS
) -> tuple[GovernorView, Memory]:
    """Decide about the next second.

    Args:
        signals: the last second.
        memory: of the last decision; a new `Memory()` at the start.
        means: fixed numbers.
        now_s: monotonic seconds.
        limits: where to act.

    Returns:
        The view (without its instant) and the memory for the next call.
    """
    database = judge_database(signals, limits)
    instances = signals.instances
    share = budget(
        safe_transactions=means.safe_transactions,
        instances=instances,
        most_per_instance=means.workers_max,
    )
    lag_high = signals.lag_s >= (limits.lag_calm_s if memory.lag_high else limits.lag_high_s)
    stalled_since_s = None
    if database is Database.STALLED:
        stalled_since_s = now_s if memory.stalled_since_s is None else memory.stalled_since_s
    memory = replace(memory, workers=memory.workers or float(max(1, instances) * means.workers))
    headroom = instances > 0 and memory.workers < share.per_instance * instances
    measures = steps(
        expiring=signals.expiring, lag_high=lag_high, database=database, headroom=headroom
    )
    want = wanted(
        signals,
        database=database,
        lag_high=lag_high,
        headroom=headroom,
        stalled_s=(
            0.0
            if stalled_since_s is None
            else max(now_s - stalled_since_s, min(signals.stalled_s, 9_999.0))
        ),
        steps=measures,
        means=means,
        limits=limits,
    )
    capacity = learn(
        capacity=memory.capacity,
        level=memory.level,
        entry_rate=memory.entry_rate,
        signals=signals,
        database=database,
        limits=limits,
        means=means,
    )
    memory = replace(
        memory,
        lag_high=lag_high,
        stalled_since_s=stalled_since_s,
        capacity=capacity,
    )
    memory = follow(memory, want, lag_high=lag_high, limits=limits, now_s=now_s)
    memory = follow_workers(
        memory,
        database=database,
        budget=share,
        instances=instances,
        lag_high=lag_high,
        receiving=signals.receiving,
        limits=limits,
        now_s=now_s,
    )
    rate, burst = _entry(signals, memory, means=means, limits=limits)
    memory = replace(memory, entry_rate=rate)
    max_open, max_pending = _gate_limits(memory, means)
    view = GovernorView(
        level=memory.level,
        entry_rate=round(rate, 1),
        entry_burst=round(burst, 1),
        groups=paces(
            memory, database=database, instances=instances, lag_high=lag_high, means=means
        ),
        reasons=_reasons(want, memory, database),
        decided_at_ms=0,
        max_open=max_open,
        max_pending=max_pending,
        busy_activities=frozenset(
            activity
            for activity, sale in signals.sales.items()
            if (0 < max_open <= sale.open) or (0 < max_pending <= sale.pending)
        ),
        drain_per_s=round(capacity, 1),
        signals=_numbers(signals, database, measures),
    )
    return view, memory


def _entry(
    signals: Signals, memory: Memory, *, means: Means, limits: Limits
) -> tuple[float, float]:
    """Return entry rate and burst of the whole system; rate 0 is no limit."""
    capacity = memory.capacity
    burst = 0.0
    match memory.level:
        case Level.NORMAL:
            rate = _STEADY_SHARE * capacity
            burst = capacity * max(0.0, _BURST_OF_SLO * means.slo_s - signals.lag_s)
        case Level.RAMP:
            rate = memory.ramp * (capacity or means.unknown_rate)
        case Level.THROTTLE:
            critical = signals.lag_s >= limits.lag_critical_s
            rate = (_CRITICAL_SHARE if critical else _THROTTLE_SHARE) * (
                capacity or means.unknown_rate
            )
        case Level.HOLD:
            rate = _HOLD_SHARE * (capacity or means.unknown_rate)
        case Level.FAIL_CLOSED:
            # Nothing new is made, whoever asks; holders ask as they like.
            return 0.0, 0.0
    if memory.level is not Level.NORMAL:
        rate = max(1.0, rate)
    if means.entry_rate > 0:
        rate = min(rate, means.entry_rate) if rate > 0 else means.entry_rate
    return rate, burst


def _gate_limits(memory: Memory, means: Means) -> tuple[int, int]:
    """Return max_open and max_pending; 0 leaves the gate's own."""
    if not at_least(memory.level, Level.THROTTLE):
        return 0, 0
    makes = (memory.capacity or means.unknown_rate) * means.slo_s
    strict = at_least(memory.level, Level.HOLD)
    return (
        max(_LEAST_OPEN, int(makes / (2 if strict else 1))),
        max(1, means.max_pending // (4 if strict else 2)),
    )


def _reasons(want: Wanted, memory: Memory, database: Database) -> tuple[str, ...]:
    reasons = list(want.reasons)
    if at_least(memory.level, Level.RAMP) and not at_least(want.level, memory.level):
        why = "after trouble" if memory.troubled else "after a throttling"
        share = f": {memory.ramp:.0%} of the capacity" if memory.level is Level.RAMP else ""
        reasons.append(f"RECOVERING{share or ': calm is awaited'}, {why}")
    if database is not Database.HEALTHY:
        reasons.append(f"DATABASE: {database.value}")
    return tuple(dict.fromkeys(reasons)) or ("ALL_WELL",)


def _numbers(signals: Signals, database: Database, measures: tuple[Step, ...]) -> dict[str, Any]:
    """Return the signals as people read them; infinite becomes None."""
    drain_s = signals.drain_time_s
    return {
        "lag_s": round(signals.lag_s, 3),
        "backlog": signals.backlog,
        "ready": signals.ready,
        "in_flight": signals.in_flight,
        "arrival_per_s": round(signals.arrival_per_s, 1),
        "drain_per_s": round(signals.drain_per_s, 1),
        "drain_time_s": None if drain_s == float("inf") else round(drain_s, 1),
        "instances": signals.instances,
        "tx_p95_ms": round(signals.tx_p95_ms, 1),
        "tx_p99_ms": round(signals.tx_p99_ms, 1),
        "pool_wait_p95_ms": round(signals.pool_wait_p95_ms, 1),
        "pending_oldest_s": round(signals.pending_oldest_s, 2),
        "expiring": signals.expiring,
        "active": signals.active,
        "lock_waits": signals.lock_waits,
        "wal_waits": signals.wal_waits,
        "wal_per_s": round(signals.wal_per_s),
        "replication_lag_s": round(signals.replication_lag_s, 1),
        "database": database.value,
        "stuck_s": round(signals.stuck_s, 1),
        "database_age_s": round(min(signals.database_age_s, 9_999.0), 1),
        "gate_age_s": round(min(signals.gate_age_s, 9_999.0), 1),
        "steps": [step.value for step in measures],
    }

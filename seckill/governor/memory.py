"""What the governor remembers from one second to the next, and the fixed numbers it works with."""

from dataclasses import dataclass

from seckill.governor.view import Level


@dataclass(frozen=True, kw_only=True, slots=True)
class Means:
    """What the system is made of; from settings.

    Args:
        groups: (name, core) of every consumer group.
        order_group: the one everything else waits for.
        compensate_group: the one that gives units back.
        safe_transactions: see `budget`.
        workers: loops of a group in a process at the start.
        workers_max: loops that a process has.
        batch_max: most messages in a transaction.
        entry_rate: the operators' own limit; 0 for none.
        unknown_rate: capacity to assume in trouble while none was ever measured.
        drain_per_s: capacity that the operators measured; 0 leaves it to the governor.
        slo_s: from accepted to order.
        max_pending: the gate's own limit.
    """

    groups: tuple[tuple[str, bool], ...]
    order_group: str
    compensate_group: str
    safe_transactions: int = 8
    workers: int = 1
    workers_max: int = 2
    batch_max: int = 128
    entry_rate: float = 0.0
    unknown_rate: float = 500.0
    drain_per_s: float = 0.0
    slo_s: float = 3.0
    max_pending: int = 2_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Between two decisions. Times are seconds of one monotonic clock.

    Args:
        level: in force.
        calm_since_s: since when a lower level would do; None while it would not.
        stalled_since_s: since when the database does not answer.
        troubled: a store or the broker was away: what follows is a slow ramp.
        lag_high: the order group is behind, with hysteresis.
        workers: loops of the order group in all processes.
        stepped_s: when workers, batches or the ramp last took a step up.
        shrunk_s: when workers or batches last took a step down.
        batch_share: of the largest batch.
        ramp: share of the capacity while the level is RAMP.
        capacity: orders a second, as measured under load; 0 while unknown.
        entry_rate: what was last let in.
    """

    level: Level = Level.NORMAL
    calm_since_s: float | None = None
    stalled_since_s: float | None = None
    troubled: bool = False
    lag_high: bool = False
    workers: float = 0.0
    stepped_s: float = 0.0
    shrunk_s: float = 0.0
    batch_share: float = 1.0
    ramp: float = 1.0
    capacity: float = 0.0
    entry_rate: float = 0.0

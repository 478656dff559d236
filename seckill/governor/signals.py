"""What the governor looks at, and the numbers at which it acts (no I/O)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from seckill.capacity.formulas import drain_s


@dataclass(frozen=True, kw_only=True, slots=True)
class SaleSignals:
    """One sale at the gate. `expiring`: open, not held, under half of their validity left."""

    open: int = 0
    pending: int = 0
    expiring: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Signals:
    """The system in one second.

    Args:
        lag_s: age of what the order group is handling, by the broker's store time.
        backlog: reservations without an outcome, of all sales.
        ready: messages of the order group that the broker holds for nobody; None when its exporter
            does not answer.
        in_flight: messages of the order group that somebody holds; None as above.
        arrival_per_s: reservations accepted a second.
        drain_per_s: messages a second that the order group settles.
        busy_per_s: what it would settle if it never had to wait for messages.
        instances: live processes of the order group.
        waiting: all of its loops wait for a store that is away.
        receiving: the broker answers at least one of them.
        tx_p95_ms, tx_p99_ms: its transactions of the last seconds.
        pool_wait_p95_ms: how long units of work waited for a connection.
        pending_oldest_s: how long the oldest uncertain send is overdue.
        active: transactions at work in the database.
        lock_waits: those that wait for a lock.
        wal_waits: those that wait for the WAL to reach the disk.
        wal_per_s: bytes of WAL a second.
        replication_lag_s: of the slowest standby; 0 without one.
        database_age_s: since the database last answered the sampler.
        stuck_s: for so long the unit of work of some loop has not been settled.
        gate_age_s: since Redis last answered the sampler.
        sales: by activity.
    """

    lag_s: float = 0.0
    backlog: int = 0
    ready: int | None = None
    in_flight: int | None = None
    arrival_per_s: float = 0.0
    drain_per_s: float = 0.0
    busy_per_s: float = 0.0
    instances: int = 1
    waiting: bool = False
    receiving: bool = True
    tx_p95_ms: float = 0.0
    tx_p99_ms: float = 0.0
    pool_wait_p95_ms: float = 0.0
    pending_oldest_s: float = 0.0
    active: int = 0
    lock_waits: int = 0
    wal_waits: int = 0
    wal_per_s: float = 0.0
    replication_lag_s: float = 0.0
    database_age_s: float = 0.0
    stuck_s: float = 0.0
    gate_age_s: float = 0.0
    sales: Mapping[int, SaleSignals] = field(default_factory=dict)

    @property
    def stalled_s(self) -> float:
        """For how long the database has shown no progress."""
        return max(self.database_age_s, self.stuck_s)

    @property
    def expiring(self) -> int:
        """Open reservations of all sales, not held, with under half of their validity left."""
        return sum(sale.expiring for sale in self.sales.values())

    @property
    def drain_time_s(self) -> float:
        """Seconds until the backlog is gone at today's rates; infinite when it does not shrink."""
        return drain_s(
            backlog=self.backlog, consume_per_s=self.drain_per_s, produce_per_s=self.arrival_per_s
        )


class Database(StrEnum):
    """What the database can bear, the worst that is true."""

    HEALTHY = "HEALTHY"
    LOADED = "LOADED"  # slow transactions, waits for locks
    WAL_SATURATED = "WAL_SATURATED"
    POOL_EXHAUSTED = "POOL_EXHAUSTED"
    STALLED = "STALLED"  # does not answer


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Where the governor acts. The source documents' first guesses, for a load test to tune.

    `calm_*` are lower than what they end: between the two nothing changes (hysteresis).
    """

    lag_high_s: float = 1.0
    lag_calm_s: float = 0.5
    lag_critical_s: float = 2.5
    tx_p99_slow_ms: float = 1_000.0
    pool_wait_ms: float = 100.0
    pool_warm_ms: float = 20.0
    pending_high_s: float = 1.0
    pending_critical_s: float = 3.0
    replication_lag_s: float = 10.0
    wal_per_s: float = 0.0  # 0: only waits are judged
    stalled_s: float = 2.5  # without a sign of progress
    gate_age_s: float = 2.5  # numbers of the gate that are older say nothing of now
    closed_after_s: float = 5.0  # stalled for so long: nothing new
    calm_s: float = 3.0  # so long must all be well before more is let in
    step_s: float = 5.0  # between two steps up
    step: float = 0.1  # of the budget, of the capacity
    ramp_start: float = 0.25  # of the capacity, after a recovery


LIMITS: Final = Limits()


def judge_database(signals: Signals, limits: Limits = LIMITS) -> Database:
    """Return what the database can bear now."""
    if signals.stalled_s > limits.stalled_s or signals.waiting:
        return Database.STALLED
    if signals.pool_wait_p95_ms > limits.pool_wait_ms:
        return Database.POOL_EXHAUSTED
    too_much_wal = 0 < limits.wal_per_s < signals.wal_per_s
    slow = signals.tx_p99_ms > limits.tx_p99_slow_ms
    waits_for_wal = signals.wal_waits >= 2 and 2 * signals.wal_waits >= signals.active
    if (
        too_much_wal
        or (slow and waits_for_wal)
        or signals.replication_lag_s > (limits.replication_lag_s)
    ):
        return Database.WAL_SATURATED
    waits_for_locks = signals.lock_waits >= 2 and 2 * signals.lock_waits >= signals.active
    if slow or waits_for_locks or signals.pool_wait_p95_ms > limits.pool_warm_ms:
        return Database.LOADED
    return Database.HEALTHY

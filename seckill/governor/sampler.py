"""All samples put together: what `decide` looks at."""

import time

from seckill.governor.database_samples import (
    DatabaseSample,
    DatabaseSampler,
    StuckMeter,
    all_waiting,
)
from seckill.governor.gate_samples import GateSample, GateSampler
from seckill.governor.history import Decided
from seckill.governor.signals import Signals


class Sampler:
    """The governor's senses: a thread for the database, the caller's own for the gate."""

    def __init__(self) -> None:
        self.database = DatabaseSampler()
        self._gate = GateSampler()
        self._gate_seen = GateSample()
        self._stuck = StuckMeter()
        self._gate_at_s = time.monotonic()

    def start(self) -> None:
        """Begin to look."""
        self.database.start()

    def stop(self) -> None:
        """Look no more."""
        self.database.stop()

    @property
    def redis_now_ms(self) -> int:
        """Redis TIME of its last answer, in epoch ms; 0 before the first."""
        return self._gate_seen.now_ms

    def write(self, decision: Decided) -> None:
        """Store a decision when the database takes it."""
        self.database.write(decision)

    def look(self) -> Signals:
        """Return the last second. Never raises; a store that is silent shows by its age."""
        now = time.monotonic()
        rows = self.database.latest or DatabaseSample(at_s=self.database.started_s)
        gate = self._gate.sample(rows.validities, rows.held)
        if gate is not None:
            self._gate_at_s, self._gate_seen = now, gate
        return _signals(
            rows,
            self._gate_seen,
            database_age_s=now - rows.at_s,
            stuck_s=self._stuck.stuck_s(rows.members, now),
            gate_age_s=now - self._gate_at_s,
        )


def _signals(
    rows: DatabaseSample,
    gate: GateSample,
    *,
    database_age_s: float,
    stuck_s: float,
    gate_age_s: float,
) -> Signals:
    # Spare loops are alive and do nothing: they say nothing of broker and database.
    at_work = [one for one in rows.members if _number(one.detail, "batch", 1.0) > 0]
    working = [one.detail for one in at_work]

    def highest(name: str) -> float:
        return max((_number(detail, name) for detail in working), default=0.0)

    def total(name: str) -> float:
        return sum(_number(detail, name) for detail in working)

    instances = len({member.process for member in rows.members})
    lag_s = highest("lag_s") if instances else rows.group_lag_s * (gate.backlog > 0)
    return Signals(
        # While heartbeats cannot be written, what waits gets older all the same.
        lag_s=lag_s + (database_age_s if gate.backlog and database_age_s > 2.0 else 0.0),
        backlog=gate.backlog,
        ready=rows.at_broker.ready if rows.at_broker else None,
        in_flight=rows.at_broker.in_flight if rows.at_broker else None,
        arrival_per_s=gate.arrival_per_s,
        drain_per_s=total("drain_per_s"),
        busy_per_s=total("busy_per_s"),
        instances=instances,
        waiting=all_waiting(at_work),
        receiving=not working or any(detail.get("receiving", True) for detail in working),
        tx_p95_ms=highest("tx_p95_ms"),
        tx_p99_ms=highest("tx_p99_ms"),
        pool_wait_p95_ms=highest("pool_wait_p95_ms"),
        pending_oldest_s=gate.pending_oldest_s,
        active=rows.active,
        lock_waits=rows.lock_waits,
        wal_waits=rows.wal_waits,
        wal_per_s=rows.wal_per_s,
        replication_lag_s=rows.replication_lag_s,
        database_age_s=database_age_s,
        stuck_s=stuck_s,
        gate_age_s=gate_age_s,
        sales=gate.sales,
    )


def _number(detail: dict[str, object], name: str, default: float = 0.0) -> float:
    """Read a number of a heartbeat; what a foreign or broken worker wrote there is 0."""
    value = detail.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return default
    return float(value) if 0 <= value < float("inf") else default

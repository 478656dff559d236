"""What PostgreSQL says, asked once a second in a thread of its own: it may hang, nobody else does.

The thread also writes the decisions: a loop that decides about a stalled database must not wait for
it.
"""

import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog
from django.db import Error as DatabaseFailure
from django.db import close_old_connections, connection

from inventory.selectors import serving_validities
from messaging import quarantine, selectors
from messaging.pulse import LoopState
from messaging.selectors import AtBroker, GroupMember
from messaging.sqlstate import reason_of
from messaging.topology import CG_ORDER_CREATE
from seckill.governor import history
from seckill.governor.history import Decided

EVERY_S: Final = 1.0
_HELD_MOST: Final = 5_000  # what is beyond counts as backlog: so many held are an incident anyway
_KEPT: Final = 120  # decisions that wait for the database; older ones are dropped

# Who works, who waits and for what, how much WAL was written, how far the slowest standby is.
_SERVER: Final = """
SELECT count(*) FILTER (WHERE state = 'active'),
       count(*) FILTER (WHERE state = 'active' AND wait_event_type = 'Lock'),
       count(*) FILTER (WHERE state = 'active'
                          AND wait_event IN ('WALSync', 'WalSync', 'WALWrite', 'WalWrite')),
       pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8,
       (SELECT coalesce(extract(epoch FROM max(replay_lag)), 0)::float8 FROM pg_stat_replication)
  FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class DatabaseSample:
    """One look. `at_s` is the monotonic time of the answer."""

    at_s: float
    active: int = 0
    lock_waits: int = 0
    wal_waits: int = 0
    wal_per_s: float = 0.0
    replication_lag_s: float = 0.0
    members: Sequence[GroupMember] = ()
    group_lag_s: float = 0.0
    at_broker: AtBroker | None = None
    validities: dict[int, int] = field(default_factory=dict)
    held: dict[int, list[str]] = field(default_factory=dict)


class DatabaseSampler:
    """The thread and its last sample."""

    def __init__(self) -> None:
        self.latest: DatabaseSample | None = None
        self.started_s = time.monotonic()
        self._wal: tuple[float, float] | None = None
        self._queue: deque[Decided] = deque(maxlen=_KEPT)
        self._stop = threading.Event()
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="governor-database", daemon=True)

    def start(self) -> None:
        """Begin to sample."""
        self._thread.start()

    def stop(self, timeout_s: float = 4.0) -> None:
        """End; a look that hangs is left to itself."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def write(self, decision: Decided) -> None:
        """Store a decision as soon as the database takes it."""
        self._queue.append(decision)

    def sample(self) -> DatabaseSample:
        """Look once.

        Cost: four statements; one more without a live member of the order group, and one more
        while there is a sale.
        """
        with connection.cursor() as cursor:
            cursor.execute(_SERVER)
            active, lock_waits, wal_waits, wal, replication_lag_s = cursor.fetchone()
        members = selectors.group_members(CG_ORDER_CREATE)
        lag = selectors.group_lag(CG_ORDER_CREATE).lag_s if not members else 0.0
        validities = serving_validities()
        now = time.monotonic()
        before, self._wal = self._wal, (now, wal)
        return DatabaseSample(
            at_s=now,
            active=active,
            lock_waits=lock_waits,
            wal_waits=wal_waits,
            wal_per_s=(wal - before[1]) / max(0.1, now - before[0]) if before else 0.0,
            replication_lag_s=replication_lag_s,
            members=members,
            group_lag_s=lag,
            at_broker=selectors.broker_backlog(CG_ORDER_CREATE),
            validities=validities,
            held=_held(validities),
        )

    def flush(self) -> None:
        """Write what waits. One statement for each decision."""
        while self._queue:
            history.store(self._queue[0])
            self._queue.popleft()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                began = time.monotonic()
                self._turn()
                self._stop.wait(max(0.05, EVERY_S - (time.monotonic() - began)))
            self.flush()
        except DatabaseFailure as error:
            log.warning("governor_decisions_unwritten", reason=reason_of(error))
        finally:
            connection.close()

    def _turn(self) -> None:
        try:
            close_old_connections()
            self.latest = self.sample()
            self.flush()
            self._failing = False
        except DatabaseFailure as error:
            connection.close()
            if not self._failing:
                log.warning("governor_database_unread", reason=reason_of(error))
            self._failing = True
        except Exception:
            log.exception("governor_sample_failed")


def _held(activities: Iterable[int]) -> dict[int, list[str]]:
    """Return the held reservations of sales.

    Asked together with the sales, not when something expires: the gate is read by another thread,
    and would take what is held for backlog until this one has come round.
    """
    found: dict[int, list[str]] = {}
    if asked := list(activities):
        for activity, reservation in quarantine.held_ids(
            group=CG_ORDER_CREATE, activity_ids=asked, most=_HELD_MOST
        ):
            found.setdefault(activity, []).append(reservation)
    return found


def all_waiting(members: Sequence[GroupMember]) -> bool:
    """Tell whether every loop of a group waits for a store that is away."""
    return bool(members) and all(member.state == LoopState.WAITING for member in members)


class StuckMeter:
    """For how long the same unit of work has stood in heartbeats: no clock of another machine."""

    def __init__(self) -> None:
        self._seen: dict[object, float] = {}

    def stuck_s(self, members: Sequence[GroupMember], now_s: float) -> float:
        """Return the longest time, in seconds."""
        units = {(one.process, one.detail.get("unit")) for one in members}
        self._seen = {
            unit: self._seen.get(unit, now_s)
            for unit in units
            if isinstance(unit[1], int) and unit[1] > 0
        }
        return max((now_s - since for since in self._seen.values()), default=0.0)

"""Workers by role and by group, from their heartbeats (no I/O)."""

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final

from messaging.selectors import WorkerRecord
from seckill.monitor.snapshot import GroupView, RoleView

# A loop that ended without saying so is shown for this long.
SILENT_S: Final = 120.0
# The worst state of a group's members is the group's.
_WORST: Final = ("PAUSED", "WAITING", "RUNNING")


def is_silent(worker: WorkerRecord, now: datetime) -> bool:
    """Whether a loop fell silent not long ago, without having said that it ends."""
    age_s = (now - worker.beat_at).total_seconds()
    return not worker.alive and worker.state != "STOPPED" and age_s <= SILENT_S


def roles(workers: Sequence[WorkerRecord], now: datetime) -> tuple[RoleView, ...]:
    """Return the roles that live or fell silent, by name."""
    shown: dict[str, list[WorkerRecord]] = {}
    for worker in workers:
        if worker.alive or is_silent(worker, now):
            shown.setdefault(worker.role, []).append(worker)
    return tuple(
        RoleView(
            role=role,
            alive=sum(worker.alive for worker in members),
            silent=sum(not worker.alive for worker in members),
            states=dict(Counter(worker.state for worker in members if worker.alive)),
            builds=tuple(sorted({worker.build for worker in members if worker.alive})),
        )
        for role, members in sorted(shown.items())
    )


def groups(
    workers: Sequence[WorkerRecord], paused: Collection[str], now: datetime
) -> tuple[GroupView, ...]:
    """Return the groups that anybody worked for in the last day, by name.

    The lag is the slowest live member's; without a live member it grows with the time since the
    last one was heard of (as `messaging.selectors.group_lag`).
    """
    by_group: dict[str, list[WorkerRecord]] = {}
    for worker in workers:  # newest first
        if worker.group:
            by_group.setdefault(worker.group, []).append(worker)
    return tuple(
        _group(name, members, paused=name in paused, now=now)
        for name, members in sorted(by_group.items())
    )


def _group(name: str, members: Sequence[WorkerRecord], *, paused: bool, now: datetime) -> GroupView:
    live = [worker for worker in members if worker.alive]
    if live:
        lag_s = max(_number(worker, "lag_s") for worker in live)
        states = {worker.state for worker in live}
        state = next((state for state in _WORST if state in states), "RUNNING")
    else:
        newest = members[0]
        lag_s = _number(newest, "lag_s") + (now - newest.beat_at).total_seconds()
        state = "NOBODY"
    return GroupView(
        group=name,
        members=len(live),
        lag_s=lag_s,
        drain_per_s=sum(_number(worker, "drain_per_s") for worker in live),
        state="PAUSED" if paused else state,
    )


def _number(worker: WorkerRecord, name: str) -> float:
    value = worker.detail.get(name, 0.0)
    return float(value) if isinstance(value, (int, float)) else 0.0

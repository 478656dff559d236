"""What the governor decided, as every process sees it (no I/O)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import msgspec
from django.conf import settings

from messaging.topology import CG_ORDER_CREATE, enabled_groups

GOVERNOR_STALE: Final = "GOVERNOR_STALE"
GOVERNOR_OFF: Final = "GOVERNOR_OFF"


class Level(StrEnum):
    """How much the system takes on now, from all to nothing."""

    NORMAL = "NORMAL"
    RAMP = "RAMP"  # after a recovery: a little more every few seconds
    THROTTLE = "THROTTLE"  # entry below what drains
    HOLD = "HOLD"  # a trickle, to see when it gets better
    FAIL_CLOSED = "FAIL_CLOSED"  # no new reservation; holders are still answered


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupPace:
    """How hard one consumer group may work.

    Args:
        workers: loops that may receive in each process of the group; 0 waits.
        batch: most messages in one transaction.
    """

    workers: int
    batch: int


@dataclass(frozen=True, kw_only=True, slots=True)
class GovernorView:
    """The decision in force.

    Args:
        level: see `Level`.
        entry_rate: new purchases a second of the whole system; 0 is no limit.
        entry_burst: how many may come at once after a quiet time; 0 is a tenth of a second's.
        groups: pace by group name; `pace` knows what stands for the others.
        reasons: why, the strongest first; each `NAME: numbers`.
        decided_at_ms: epoch ms; 0 for a view that no governor decided.
        stale: no governor was heard of in time: what it last said does not count any more.
        max_open: reservations without an outcome that a sale may have; 0 leaves the gate's limit.
        max_pending: reservations not known to be in the broker; 0 leaves the gate's limit.
        busy_activities: sales above one of these two: nothing new for them.
        web_processes: live web processes that share the entry rate.
        drain_per_s: orders a second that the order group is known to make; 0 when unknown.
        signals: the numbers the decision was made from, for people.
    """

    level: Level
    entry_rate: float
    groups: Mapping[str, GroupPace]
    reasons: tuple[str, ...]
    decided_at_ms: int
    stale: bool = False
    entry_burst: float = 0.0
    max_open: int = 0
    max_pending: int = 0
    busy_activities: frozenset[int] = frozenset()
    web_processes: int = 1
    drain_per_s: float = 0.0
    signals: Mapping[str, Any] = field(default_factory=dict)

    def pace(self, group: str) -> GroupPace:
        """Return the pace of a group; the static one when the decision does not name it."""
        return self.groups.get(group) or static_pace()


def static_pace() -> GroupPace:
    """Return the pace of a group that nobody governs."""
    return GroupPace(workers=settings.SECKILL_CONSUMER_WORKERS, batch=settings.SECKILL_BATCH_MAX)


def static_view() -> GovernorView:
    """Return what holds while SECKILL_GOVERNOR is off: the settings' own limits."""
    return GovernorView(
        level=Level.NORMAL,
        entry_rate=settings.SECKILL_ENTRY_RATE,
        groups={},
        reasons=(GOVERNOR_OFF,),
        decided_at_ms=0,
        web_processes=max(1, settings.SECKILL_WEB_PROCESSES),
    )


def stale_view(*, web_processes: int = 0) -> GovernorView:
    """Return what holds while no governor is heard of: a careful entry, side groups at a quarter.

    Consumers go on: what was accepted must become orders whoever decides.
    """
    own = static_pace()
    return GovernorView(
        level=Level.THROTTLE,
        entry_rate=_lower(settings.SECKILL_ENTRY_RATE, settings.SECKILL_GOVERNOR_STALE_RATE),
        groups={
            group.name: own
            if group.name == CG_ORDER_CREATE or group.core
            else GroupPace(workers=1, batch=max(1, own.batch // 4))
            for group in enabled_groups()
        },
        reasons=(GOVERNOR_STALE,),
        decided_at_ms=0,
        stale=True,
        web_processes=web_processes or max(1, settings.SECKILL_WEB_PROCESSES),
    )


def encode(view: GovernorView) -> bytes:
    """Return the view as it is published."""
    return msgspec.json.encode(view)


def decode(raw: bytes | str) -> GovernorView | None:
    """Read a published view; None for whatever no governor of ours can have written."""
    try:
        view = msgspec.json.decode(raw, type=GovernorView)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):  # nested too deeply; no text
        return None
    sane = (
        0 <= view.entry_rate < float("inf")
        and 0 <= view.entry_burst < float("inf")
        and view.decided_at_ms > 0
        and not view.stale
        and all(pace.workers >= 0 and pace.batch >= 1 for pace in view.groups.values())
    )
    return view if sane else None


def _lower(first: float, second: float) -> float:
    """Return the lower of two rates, 0 being no limit."""
    return min(rate for rate in (first, second) if rate > 0) if first > 0 or second > 0 else 0.0

"""All metrics of the governor: names as in docs/metrics.md."""

from typing import Final

from prometheus_client import Counter, Gauge

from seckill.governor.signals import Signals
from seckill.governor.view import GovernorView, Level

LEVEL: Final = Gauge(
    "seckill_governor_level",
    "Level in force: 0 NORMAL, 1 RAMP, 2 THROTTLE, 3 HOLD, 4 FAIL_CLOSED.",
    multiprocess_mode="livemax",
)
ENTRY_RATE: Final = Gauge(
    "seckill_governor_entry_rate",
    "New purchases a second that the system lets in; 0 is no limit.",
    multiprocess_mode="livemax",
)
CAPACITY: Final = Gauge(
    "seckill_governor_capacity",
    "Orders a second that the order group is known to make; 0 while unknown.",
    multiprocess_mode="livemax",
)
WORKERS: Final = Gauge(
    "seckill_governor_workers",
    "Loops that a process of the group may run.",
    ["group"],
    multiprocess_mode="livemax",
)
EXPIRING: Final = Gauge(
    "reservation_expiring",
    "Reservations without an outcome and with under half of their validity left.",
    ["activity"],
    multiprocess_mode="livemax",
)
CHANGES: Final = Counter(
    "seckill_governor_changes_total", "Changes of the level.", ["before", "after"]
)

_NUMBER: Final = {level: place for place, level in enumerate(Level)}


def observe(signals: Signals, view: GovernorView) -> None:
    """Set the gauges of one decision."""
    LEVEL.set(_NUMBER[view.level])
    ENTRY_RATE.set(view.entry_rate)
    CAPACITY.set(view.drain_per_s)
    for group, pace in view.groups.items():
        WORKERS.labels(group).set(pace.workers)
    EXPIRING.clear()
    for activity, sale in signals.sales.items():
        EXPIRING.labels(str(activity)).set(sale.expiring)

"""All metrics of the governor: names as in docs/metrics.md."""

from typing import Final

from prometheus_client import Counter, Gauge

from seckill.governor.signals import Signals
from seckill.governor.view import GovernorView, Level

# A gauge without labels is 0 in every process that imports this: only the maximum says something.
LEADS: Final = Gauge(
    "seckill_governor_leads",
    "1 in the process whose governor leads, 0 elsewhere.",
    multiprocess_mode="livemax",
)
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
    "Reservations without an outcome and with under half of their validity left; held ones apart.",
    ["activity"],
    multiprocess_mode="livemax",
)
CHANGES: Final = Counter(
    "seckill_governor_changes_total", "Changes of the level.", ["before", "after"]
)

_NUMBER: Final = {level: place for place, level in enumerate(Level)}


def note_lead(*, leads: bool) -> None:
    """Say whether this process governs; one that does not has no decision in force to tell of."""
    LEADS.set(leads)
    if leads:
        return
    for gauge in (LEVEL, ENTRY_RATE, CAPACITY):
        gauge.set(0)
    WORKERS.clear()
    EXPIRING.clear()


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

"""The governor's decision in force, as the monitor shows it."""

from seckill.governor import current
from seckill.governor.view import GOVERNOR_OFF
from seckill.monitor.snapshot import GovernorPart


def governor_part() -> GovernorPart:
    """Return what the governor says now. Cost: an attribute."""
    view = current()
    off = GOVERNOR_OFF in view.reasons
    return GovernorPart(
        state="off" if off else "stale" if view.stale else "on",
        level=view.level.value,
        entry_rate=view.entry_rate,
        reasons=view.reasons,
        signals=view.signals,
        history=(),
    )

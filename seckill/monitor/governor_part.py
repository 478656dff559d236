"""What the governor decided, as the monitor shows it: also when nobody obeys it."""

from typing import Final

from django.conf import settings

from inventory.gate import gate
from seckill.governor import history, store
from seckill.governor.view import GovernorView, decode, stale_view, static_view
from seckill.monitor.snapshot import Decision, GovernorPart

_SHOWN: Final = 12


def governor_part() -> GovernorPart:
    """Return the decision that stands in Redis, and the last changes of the level.

    Raises:
        InventoryError: Redis did not answer.

    Cost: one statement, one read of Redis.
    """
    obeyed = settings.SECKILL_GOVERNOR == "on"
    decision = gate().run(store.read()).decision
    view = decode(decision) if decision is not None else None
    if view is not None:
        return _part(view, "on" if obeyed else "watching")
    return _part(stale_view(), "stale") if obeyed else _part(static_view(), "off")


def _part(view: GovernorView, state: str) -> GovernorPart:
    return GovernorPart(
        state=state,
        level=view.level.value,
        entry_rate=view.entry_rate,
        reasons=view.reasons,
        signals=view.signals,
        history=tuple(
            Decision(
                at_ms=round(one.decided_at.timestamp() * 1000),
                level=one.level,
                reasons=one.reasons,
            )
            for one in history.recent(_SHOWN, only_levels=True)
        ),
    )

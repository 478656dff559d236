"""How much of its rate a replay may use now: the governor's word, in the replay worker's terms."""

from typing import Any, Final

from django.conf import settings

from dlq_admin.replay.limits import Pressure
from messaging import selectors
from messaging.topology import CG_ORDER_CREATE
from seckill.governor import GovernorView, Level, current

# Buyers go first: what a replay may take of its approved rate at each level.
_SHARE: Final = {
    Level.NORMAL: 1.0,
    Level.RAMP: 0.5,
    Level.THROTTLE: 0.25,
    Level.HOLD: 0.1,
    Level.FAIL_CLOSED: 0.0,
}


def pressure() -> Pressure:
    """Return the pressure of this moment. One statement; never waits for the governor."""
    lag = selectors.group_lag(CG_ORDER_CREATE)
    return pressure_of(current(), lag_s=lag.lag_s if lag.members else None)


def pressure_of(view: GovernorView, *, lag_s: float | None) -> Pressure:
    """Translate a decision; a stale one throttles and says nothing of the database."""
    share = _SHARE[view.level]
    signals: dict[str, Any] = {} if view.stale else dict(view.signals)
    tx_p95_ms = signals.get("tx_p95_ms")
    active = signals.get("active")
    safe = max(1, settings.SECKILL_SAFE_TRANSACTIONS)
    return Pressure(
        share=share,
        database_share=float(active) / safe if active is not None else None,
        tx_p95_s=float(tx_p95_ms) / 1000 if tx_p95_ms is not None else None,
        lag_s=lag_s,
        reason="" if share >= 1 else f"{view.level}: {', '.join(view.reasons)}"[:200],
    )

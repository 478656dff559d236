"""How fast a batch may send, and when it must pause by itself (pure)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

FAILED_SHARE: Final = 0.05
RECENT: Final = 50
BUDGET_SHARE: Final = 0.8


@dataclass(frozen=True, kw_only=True, slots=True)
class Pressure:
    """What the system can bear now, as the governor (or whoever stands for it) says.

    Args:
        share: of the approved rate that may be used, 0 to 1.
        database_share: of the budget for order transactions that is used; None when unknown.
        tx_p95_s: 95th percentile of the order transaction, seconds; None when unknown.
        lag_s: how far the order group is behind, seconds; None when unknown.
        reason: why `share` is below 1, for people.
    """

    share: float = 1.0
    database_share: float | None = None
    tx_p95_s: float | None = None
    lag_s: float | None = None
    reason: str = ""


NO_PRESSURE: Final = Pressure()


def rate(*, cap: int, live: int, pressure: Pressure) -> float:
    """Return messages a second: the lowest of what was approved, what people set, the governor."""
    return min(float(cap), float(live), cap * pressure.share)


def room(*, rate_per_s: float, sent_last_second: int, unpublished: int) -> int:
    """Return how many may be written now: never more than a second's worth ahead of the sender.

    A rate below one a second sends one at a time: `sent_last_second` then counts the last
    `1 / rate` seconds.
    """
    if rate_per_s <= 0:
        return 0
    return max(0, max(1, int(rate_per_s)) - max(sent_last_second, unpublished))


def reason_to_pause(
    *,
    recent: Sequence[bool],
    invariant_failed: bool,
    pressure: Pressure,
    max_tx_p95_s: float,
    max_lag_s: float,
) -> str:
    """Return why a batch must pause by itself; empty when it may go on.

    Args:
        recent: its newest ends, True for a failure; the last 50 count.
        invariant_failed: an invariant did not hold since it was last resumed.
        pressure: see `Pressure`.
        max_tx_p95_s: bound of the order transaction's 95th percentile.
        max_lag_s: bound of the order group's lag.
    """
    if invariant_failed:
        return "INVARIANT_FAIL"
    last = list(recent)[:RECENT]
    failures = sum(last)
    if failures and failures >= FAILED_SHARE * len(last):
        return f"FAILURES: {failures} of the last {len(last)}"
    if pressure.database_share is not None and pressure.database_share > BUDGET_SHARE:
        return f"DATABASE_BUDGET: {pressure.database_share:.0%} used"
    if pressure.tx_p95_s is not None and pressure.tx_p95_s > max_tx_p95_s:
        return f"TRANSACTION_P95: {pressure.tx_p95_s:.2f} s"
    if pressure.lag_s is not None and pressure.lag_s > max_lag_s:
        return f"LAG: {pressure.lag_s:.1f} s"
    return ""

"""Where more concurrency stops helping (no I/O)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

GOOD_ENOUGH: Final = 0.9


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One concurrency, measured. Rates per second, times in ms, `retries` are lost races."""

    concurrency: int
    transactions_per_s: float
    orders_per_s: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    retries: int = 0


def find_knee(steps: Sequence[Step], *, good_enough: float = GOOD_ENOUGH) -> Step:
    """Return the least concurrency that reaches nearly the best throughput.

    Beyond it only waiting grows: p95 and p99 rise, throughput does not.

    Args:
        steps: at least one, by rising concurrency.
        good_enough: share of the best throughput that counts as reached.

    Raises:
        ValueError: no steps.
    """
    if not steps:
        raise ValueError("no steps were measured")
    best = max(step.transactions_per_s for step in steps)
    return next(step for step in steps if step.transactions_per_s >= good_enough * best)


def is_over(steps: Sequence[Step]) -> bool:
    """Tell whether climbing further is pointless: two steps in a row gained under 5 %."""
    if len(steps) < 3:
        return False
    before, middle, last = steps[-3:]
    best = before.transactions_per_s
    return middle.transactions_per_s < 1.05 * best and last.transactions_per_s < 1.05 * best

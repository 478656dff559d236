"""Nothing that is fast and wrong counts: lost, oversold and duplicates of a scenario's sale."""

import time
from typing import Any

from bench.bench import Bench
from seckill.demo.result import breach_text, check_invariants, motion, promised
from seckill.demo.sale import Numbers, Sale, look


def wait_for_orders(
    bench: Bench, sale: Sale, count: int, *, timeout_s: float, rest: bool
) -> Numbers:
    """Wait until so many reservations have an outcome and, with `rest`, nothing moves any more."""
    deadline = time.monotonic() + timeout_s
    while True:
        numbers = look(sale)
        enough = numbers.orders + numbers.rejected >= count
        if enough and (not rest or numbers.at_rest):
            return numbers
        if time.monotonic() > deadline:
            bench.say(f"not finished after {timeout_s:.0f} s: {numbers}")
            return numbers
        time.sleep(0.25)


def audit(
    bench: Bench, sale: Sale, accepted_ids: list[str], *, rested: bool = True
) -> tuple[dict[str, int], list[str]]:
    """Return lost, broken, oversold and duplicates, and the breaches as text.

    Motion is a breach, unless the scenario waited for its orders only (not `rested`): it is told
    then, as totals are nobody's claim while things move.
    """
    report: dict[str, Any] = check_invariants(
        sale.activity_id, environment=bench.rig.environment, at_rest=rested
    )
    moves = motion(report)
    if moves and not rested:
        bench.say(f"totals not compared: {'; '.join(moves)}")
    lost, broken = promised(accepted_ids)
    numbers = {
        "lost": max(lost, int(report.get("lost", 0))),
        "broken": max(broken, int(report.get("broken", 0))),
        "oversold": int(report.get("oversold", 0)),
        "duplicates": int(report.get("duplicates", 0)),
    }
    breaches = [breach_text(breach) for breach in report.get("breaches", [])]
    return numbers, breaches + (moves if rested else [])

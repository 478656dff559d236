"""`drain`, `drain-full`, `growth`: how fast a backlog becomes orders."""

import time
from collections import Counter

from bench.audit import audit, wait_for_orders
from bench.backlog import fill
from bench.bench import Bench, Outcome
from bench.commits import read_commits
from bench.history import History
from bench.loadgen.histogram import Histogram
from bench.scenarios.warm_up import warm_up
from bench.series import per_second

_BACKLOG_PER_S = 4_000


def drain(bench: Bench) -> Outcome:
    """The order group alone: two processes, no sender, no other group."""
    return _drain(bench, everything=False)


def drain_full(bench: Bench) -> Outcome:
    """All groups, sender and scanner."""
    return _drain(bench, everything=True)


def growth(bench: Bench) -> Outcome:
    """The order group alone, again and again, while the tables of old orders grow."""
    sizes = _sizes(bench.wish.history or 1_000_000)
    backlog = _backlog(bench, 2.5)
    bench.start()
    warm_up(bench)
    _stop_consumers(bench)
    history = History()
    rates: dict[int, float] = {}
    found: Counter[str] = Counter()
    breaches: list[str] = []
    errors = 0
    answers: Counter[str] = Counter()
    late = Histogram()
    for size in sizes:
        bench.say(f"history of {size} orders")
        history.grow(size)
        filled = fill(bench, backlog)
        sale, accepted = filled.sale, filled.accepted
        errors += filled.answers.errors
        answers.update(filled.answers.shown)
        bench.rig.supervisor.stop_program("scanner")
        bench.start_later("orders")
        wait_for_orders(bench, sale, len(accepted), timeout_s=180, rest=False)
        commits = read_commits(sale.activity_id, validity_s=sale.validity_s)
        rates[size], late = round(commits.rate(), 1), commits.lateness
        bad, lines = audit(bench, sale, accepted, rested=False)
        found.update(bad)
        breaches += lines
        bench.rig.supervisor.stop_program("orders")
        bench.start_later("scanner")
    ratio = rates[sizes[-1]] / rates[0] if rates[0] else 0.0
    return Outcome(
        rate_per_s=rates[sizes[-1]],
        p50_ms=late.percentile_ms(50),
        p95_ms=late.percentile_ms(95),
        p99_ms=late.percentile_ms(99),
        errors=len(breaches) + errors,
        connections=bench.connections or 200,
        orders=dict(found),
        latency=late,
        more={
            "orders_per_s_by_history": rates,
            "last_to_first": round(ratio, 3),
            "answers": dict(answers),
            "breaches": breaches,
        },
        notes=[
            f"{rate:.0f} orders/s with {size} old orders, each with item, reservation, inbox and"
            " ledger row"
            for size, rate in rates.items()
        ],
    )


def _sizes(largest: int) -> list[int]:
    """Return 0, then powers of ten from 100 000 (or the largest, when it is smaller) upwards."""
    sizes = [0]
    size = min(100_000, largest)
    while size < largest:
        sizes.append(size)
        size *= 10
    return [*sizes, largest]


def _backlog(bench: Bench, seconds: float) -> int:
    return bench.wish.orders or int((bench.wish.seconds or seconds) * _BACKLOG_PER_S)


def _stop_consumers(bench: Bench) -> list[str]:
    """Stop the order group and all others but the scanner; return the names of the others."""
    others = [name for name in bench.rig.names if name not in ("web", "orders", "celery")]
    for name in ("orders", *(name for name in others if name != "scanner")):
        bench.rig.supervisor.stop_program(name)
    return others


def _drain(bench: Bench, *, everything: bool) -> Outcome:
    bench.start()
    warm_up(bench)
    others = _stop_consumers(bench)
    backlog = fill(bench, _backlog(bench, 10.0))
    sale, accepted = backlog.sale, backlog.accepted
    bench.rig.supervisor.stop_program("scanner")
    programs = ["orders", *(others if everything else [])]
    bench.say(f"{len(accepted)} accepted; starting {', '.join(programs)}")
    began = time.time()
    bench.start_later(*programs)
    wait_for_orders(bench, sale, len(accepted), timeout_s=180, rest=False)
    commits = read_commits(sale.activity_id, validity_s=sale.validity_s)
    rest_s = 0.0
    if everything:
        wait_for_orders(bench, sale, len(accepted), timeout_s=240, rest=True)
        rest_s = round(time.time() - began, 1)
    found, breaches = audit(bench, sale, accepted, rested=everything)
    late = commits.lateness
    notes = ["rate: from the first commit to 99 % of them; the times are from reservation to order"]
    if rest_s:
        notes.append(f"everything at rest {rest_s} s after the consumers' start")
    return Outcome(
        rate_per_s=round(commits.rate(), 1),
        p50_ms=late.percentile_ms(50),
        p95_ms=late.percentile_ms(95),
        p99_ms=late.percentile_ms(99),
        errors=len(breaches) + backlog.answers.errors,
        connections=bench.connections or 200,
        orders=found,
        latency=late,
        series={"orders/s": per_second(commits.committed_s, start=began)},
        more={
            **backlog.shown,
            "orders": commits.count,
            "exact_commit_times": commits.exact,
            "rest_s": rest_s,
            "breaches": breaches,
        },
        notes=notes,
    )

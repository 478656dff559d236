"""`recovery`: the consumers were away while buyers were accepted; how long until none waits."""

import time
from typing import Final

from bench.audit import audit, wait_for_orders
from bench.backlog import CONSUMERS, fill
from bench.bench import Bench, Outcome
from bench.commits import read_commits
from bench.scenarios.warm_up import warm_up
from bench.series import Point, per_second
from seckill.demo.sale import Sale, look

_BACKLOG: Final = 20_000
_LOOK_EVERY_S: Final = 0.5
_TIMEOUT_S: Final = 300.0


def recovery(bench: Bench) -> Outcome:
    """All consumers away, sender and scanner at work; then everything again."""
    bench.start()
    warm_up(bench)
    for name in CONSUMERS:
        bench.rig.supervisor.stop_program(name)
    backlog = fill(bench, bench.wish.orders or _BACKLOG)
    sale, accepted = backlog.sale, backlog.accepted
    bench.say(f"{len(accepted)} accepted; starting {', '.join(CONSUMERS)}")
    began, clock = time.time(), time.monotonic()
    bench.start_later(*CONSUMERS)
    waiting, lag = _watch(sale)
    none_waits_s = round(time.monotonic() - clock, 2)
    wait_for_orders(bench, sale, len(accepted), timeout_s=240, rest=True)
    rest_s = round(time.monotonic() - clock, 2)
    commits = read_commits(sale.activity_id, validity_s=sale.validity_s)
    found, breaches = audit(bench, sale, accepted)
    late = commits.lateness
    first_s = round(commits.reached_s(0) - began, 2) if commits.count else 0.0
    return Outcome(
        rate_per_s=round(len(accepted) / none_waits_s, 1),
        p50_ms=late.percentile_ms(50),
        p95_ms=late.percentile_ms(95),
        p99_ms=late.percentile_ms(99),
        errors=len(breaches) + backlog.answers.errors + int(waiting[-1][1]),
        connections=bench.connections or 200,
        orders=found,
        latency=late,
        series={
            "orders/s": per_second(commits.committed_s, start=began),
            "waiting": waiting,
            "lag (s)": lag,
        },
        more={
            **backlog.shown,
            "orders": commits.count,
            "first_order_s": first_s,
            "lag_0_s": none_waits_s,
            "rest_s": rest_s,
            "orders_per_s_while_draining": round(commits.rate(), 1),
            "breaches": breaches,
        },
        notes=[
            f"{len(accepted)} waited; first order {first_s} s after the start of the consumers,"
            f" none waits after {none_waits_s} s, at rest after {rest_s} s",
            "rate: what waited over the time until none waits, start of the processes included",
        ],
    )


def _watch(sale: Sale) -> tuple[list[Point], list[Point]]:
    """Look until no reservation waits; return how many did over time, and the oldest one's age."""
    waiting: list[Point] = []
    lag: list[Point] = []
    began = time.monotonic()
    while (at := time.monotonic() - began) < _TIMEOUT_S:
        numbers = look(sale)
        waiting.append((round(at, 2), numbers.open))
        lag.append((round(at, 2), round(numbers.lag_s, 2)))
        if not numbers.open:
            break
        time.sleep(_LOOK_EVERY_S)
    return waiting, lag

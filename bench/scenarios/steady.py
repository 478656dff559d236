"""`steady` and `memory`: buyers at an even rate who pay, cancel or let their time run out."""

import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from django.db import connection

from bench.answers import sort_answers
from bench.audit import audit
from bench.bench import LIFTED, Bench, Outcome
from bench.commits import Commits, read_commits
from bench.footprint import Footprint, summary
from bench.mix import Buyers, Intent, intent
from bench.scenarios.warm_up import warm_up
from bench.series import Point, per_second
from bench.stream import Streamed, stream
from messaging.topology import CG_ORDER_CREATE
from seckill.demo.sale import Sale, look, make_sale, open_sale

_RATE: Final = 150.0
_SECONDS: Final = 120.0
_MINUTES: Final = 60.0
_PAY_WINDOW_S: Final = 20
_SLO_MS: Final = 3_000.0
_IN_TIME: Final = 0.999
_REST_S: Final = 120.0
MEMORY_BAR_MB: Final = 900.0
_ENDED = """
SELECT order_id, status, extract(epoch FROM coalesce(paid_at, canceled_at))
FROM orders_order WHERE activity_id = %s
"""
_DELIVERIES = """
SELECT inbox.delivery_attempt, count(*)
FROM messaging_inbox inbox JOIN orders_reservation USING (message_id)
WHERE consumer_group = %s AND activity_id = %s
GROUP BY inbox.delivery_attempt ORDER BY inbox.delivery_attempt
"""


@dataclass(kw_only=True)
class _Run:
    """One steady run, ended and audited."""

    rate: float
    seconds: float
    streamed: Streamed
    buyers: Buyers
    commits: Commits
    found: dict[str, int]
    breaches: list[str]
    wrong_ends: Counter[str]
    series: dict[str, list[Point]]
    ended: Counter[str]
    deliveries: dict[str, int]  # orders by the delivery that made them

    @property
    def in_time_share(self) -> float:
        return self.commits.in_time(_SLO_MS) / max(1, self.commits.count)


def steady(bench: Bench) -> Outcome:
    """The mix at an even rate for minutes; every order must end as its buyer wanted."""
    bench.start()
    warm_up(bench)
    seconds = bench.wish.minutes * 60 or bench.wish.seconds or _SECONDS
    return _outcome(bench, _play(bench, rate=bench.wish.rate or _RATE, seconds=seconds))


def memory(bench: Bench) -> Outcome:
    """The same for an hour, with an eye on the memory of all Python processes."""
    bench.start()
    warm_up(bench)
    seconds = bench.wish.seconds or (bench.wish.minutes or _MINUTES) * 60
    every_s = max(1.0, seconds / 600)
    with Footprint(supervisor=bench.rig.supervisor, every_s=every_s) as footprint:
        run = _play(bench, rate=bench.wish.rate or _RATE, seconds=seconds)
    outcome = _outcome(bench, run)
    found = summary(footprint.looks)
    # What the machine must have: a page that several processes share is there once.
    outcome.rate_per_s = found["pss_peak_mb"]
    outcome.series = footprint.series() | outcome.series
    outcome.more |= found
    if found["pss_peak_mb"] > MEMORY_BAR_MB:
        outcome.more["breaches"] = [
            *outcome.more["breaches"],
            f"{found['pss_peak_mb']} MB, at most {MEMORY_BAR_MB:.0f} are allowed",
        ]
    by_process = ", ".join(f"{n} {mb:.0f}" for n, mb in found["rss_end_mb_by_process"].items())
    outcome.notes += [
        f"{found['processes']} processes, shared pages counted once: at most"
        f" {found['pss_peak_mb']} MB, at the end {found['pss_end_mb']};"
        f" resident in sum {found['rss_peak_mb']} MB",
        f"growth in the second half {found['rss_growth_mb_per_h']} MB an hour; at the end (MB):"
        f" {by_process}",
    ]
    return outcome


def _play(bench: Bench, *, rate: float, seconds: float) -> _Run:
    sale = make_sale(
        name="bench steady",
        stock=LIFTED,
        pay_window_s=_PAY_WINDOW_S,
        minutes=int(seconds / 60) + 30,
    )
    open_sale(sale)
    bench.say(f"{rate:.0f} buyers a second for {seconds:.0f} s")
    with Buyers(sale, port=bench.rig.port, environment=bench.rig.environment) as buyers:
        began = time.time()
        streamed = stream(bench, sale, rate=rate, seconds=seconds)
        if not _wait_for_end(sale):
            bench.say(f"not everything has ended after {_REST_S:.0f} s: {look(sale)}")
    found, breaches = audit(bench, sale, streamed.accepted_ids)
    commits = read_commits(sale.activity_id, validity_s=sale.validity_s)
    with connection.cursor() as cursor:
        cursor.execute(_ENDED, [sale.activity_id])
        rows = cursor.fetchall()
        cursor.execute(_DELIVERIES, [CG_ORDER_CREATE, sale.activity_id])
        deliveries = {str(attempt): count for attempt, count in cursor.fetchall()}
    series = {
        "accepted/s": streamed.accepted_per_s,
        "orders/s": per_second(commits.committed_s, start=began),
    }
    for status, name in (("PAID", "paid/s"), ("CANCELED", "canceled/s")):
        instants = sorted(float(at) for _, how, at in rows if how == status)
        series[name] = per_second(instants, start=began)
    return _Run(
        rate=rate,
        seconds=seconds,
        streamed=streamed,
        buyers=buyers,
        commits=commits,
        found=found,
        breaches=breaches,
        wrong_ends=wrong_ends([(order_id, status) for order_id, status, _ in rows]),
        series=series,
        ended=Counter(status for _, status, _ in rows),
        deliveries=deliveries,
    )


def wrong_ends(orders: list[tuple[str, str]]) -> Counter[str]:
    """Count the orders that did not end as their buyers wanted: `wanted → status`."""
    wrong: Counter[str] = Counter()
    for order_id, status in orders:
        wanted = "PAID" if intent(order_id) is Intent.PAY else "CANCELED"
        if status != wanted:
            wrong[f"{wanted} wanted, {status}"] += 1
    return wrong


def _wait_for_end(sale: Sale) -> bool:
    """Wait until every order is paid or canceled and nothing moves."""
    deadline = time.monotonic() + _PAY_WINDOW_S + _REST_S
    while time.monotonic() < deadline:
        numbers = look(sale)
        if numbers.at_rest and not numbers.unpaid:
            return True
        time.sleep(0.5)
    return False


def _outcome(bench: Bench, run: _Run) -> Outcome:
    late, streamed, buyers = run.commits.lateness, run.streamed, run.buyers
    calls: dict[str, Any] = {
        kind.name.lower(): {
            "codes": dict(buyers.codes[kind]),
            "p50_ms": histogram.percentile_ms(50),
            "p99_ms": histogram.percentile_ms(99),
        }
        for kind, histogram in buyers.latency.items()
    }
    wanted = round(run.rate * run.seconds)
    unserved = max(0, wanted - len(streamed.accepted_ids))
    too_late = 0 if run.in_time_share >= _IN_TIME else 1
    answers = sort_answers({"codes": streamed.codes, "errors": {}, "unanswered": 0})
    failures = (
        max(unserved, sum(answers.wrong.values())),  # mostly the same buyers
        streamed.errors,
        buyers.failed,
        sum(run.wrong_ends.values()),
        too_late,
        len(run.breaches),
    )
    return Outcome(
        rate_per_s=round(run.commits.rate(), 1),
        p50_ms=late.percentile_ms(50),
        p95_ms=late.percentile_ms(95),
        p99_ms=late.percentile_ms(99),
        errors=sum(failures),
        connections=bench.connections or 50,
        orders=run.found,
        latency=late,
        series=run.series,
        more={
            "asked_per_s": run.rate,
            "seconds": run.seconds,
            "accepted": len(streamed.accepted_ids),
            "unserved": unserved,
            "orders": run.commits.count,
            "ended": dict(run.ended),
            "wrong_ends": dict(run.wrong_ends),
            "pending": streamed.pending,
            "orders_by_delivery": run.deliveries,
            "in_time_share": round(run.in_time_share, 5),
            "answer_p50_ms": streamed.latency.percentile_ms(50),
            "answer_p99_ms": streamed.latency.percentile_ms(99),
            "codes": streamed.codes,
            "answers": answers.shown,
            "calls": calls,
            "breaches": run.breaches,
        },
        notes=[
            f"{wanted} buyers, {unserved} without a reservation; answers p50"
            f" {streamed.latency.percentile_ms(50):.1f} ms, p99"
            f" {streamed.latency.percentile_ms(99):.1f} ms (from the moment a click was due)",
            f"{run.commits.count} orders, {run.in_time_share:.2%} within 3 s: {dict(run.ended)};"
            f" ended otherwise than wanted: {dict(run.wrong_ends) or 'none'}",
            f"{streamed.pending} answered PENDING; orders by delivery attempt: {run.deliveries}",
            *(
                f"{name}: p50 {call['p50_ms']:.1f} ms, p99 {call['p99_ms']:.1f} ms, {call['codes']}"
                for name, call in calls.items()
            ),
        ],
    )

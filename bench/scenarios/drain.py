"""`drain` and `drain-full`: how fast a backlog becomes orders."""

import time

from bench.audit import audit, wait_for_orders
from bench.bench import LIFTED, Bench, Outcome
from bench.commits import read_commits
from bench.loadgen.plan import Plan
from bench.scenarios.warm_up import warm_up
from seckill.demo.sale import Sale, look, make_sale, open_sale

_BACKLOG_PER_S = 4_000


def drain(bench: Bench) -> Outcome:
    """The order group alone: two processes, no sender, no other group."""
    return _drain(bench, everything=False)


def drain_full(bench: Bench) -> Outcome:
    """All groups, sender and scanner."""
    return _drain(bench, everything=True)


def _wait_until_sent(bench: Bench, sale: Sale) -> None:
    """Wait until the broker has all: the scanner sends what admission's budget did not confirm."""
    deadline = time.monotonic() + 60
    while (pending := look(sale).pending) and time.monotonic() < deadline:
        time.sleep(0.25)
    if pending:
        bench.say(f"{pending} reservations are still not known to be in the broker")


def _drain(bench: Bench, *, everything: bool) -> Outcome:
    connections = bench.connections or 200
    backlog = int((bench.wish.seconds or 10.0) * _BACKLOG_PER_S)
    bench.start()
    warm_up(bench)
    others = [name for name in bench.rig.names if name not in ("web", "orders", "celery")]
    for name in ("orders", *(name for name in others if name != "scanner")):
        bench.rig.supervisor.stop_program(name)
    sale = make_sale(name="bench drain", stock=LIFTED, max_open=LIFTED, max_pending=LIFTED)
    open_sale(sale)
    plan = Plan(
        port=bench.rig.port,
        path=sale.path,
        connections=connections,
        seconds=120,
        users=backlog,
        retry=True,
    )
    with bench.load(plan) as load:
        load.wait_ready(timeout_s=120)
        bench.say(f"{backlog} reservations, consumers off")
        load.go()
        filled = load.result(timeout_s=180)
        accepted = load.accepted_ids()
    if len(accepted) < backlog:
        bench.say(f"only {len(accepted)} accepted: {filled['codes']} {filled['errors']}")
    _wait_until_sent(bench, sale)
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
    found, breaches = audit(bench, sale, accepted)
    late = commits.lateness
    notes = ["rate: from the first commit to 99 % of them; the times are from reservation to order"]
    if rest_s:
        notes.append(f"everything at rest {rest_s} s after the consumers' start")
    return Outcome(
        rate_per_s=round(commits.rate(), 1),
        p50_ms=late.percentile_ms(50),
        p95_ms=late.percentile_ms(95),
        p99_ms=late.percentile_ms(99),
        errors=len(breaches),
        connections=connections,
        orders=found,
        more={
            "orders": commits.count,
            "accepted": len(accepted),
            "codes": filled["codes"],
            "exact_commit_times": commits.exact,
            "rest_s": rest_s,
            "breaches": breaches,
        },
        notes=notes,
    )

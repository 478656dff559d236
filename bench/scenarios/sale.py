"""`sale` and `burst`: the whole path under a crowd, all groups running."""

from typing import Any

from bench.answers import ACCEPTED, SOLD_OUT, sort_answers
from bench.audit import audit, wait_for_orders
from bench.bench import Bench, Outcome
from bench.commits import Commits, read_commits
from bench.crowd import let_in
from bench.generator import latency
from bench.scenarios.warm_up import warm_up
from bench.series import per_second
from seckill.demo.sale import Sale, make_sale, open_sale


def sale(bench: Bench) -> Outcome:
    """20 000 units, 22 000 buyers, 50 connections; who is asked to come again does."""
    units = bench.wish.orders or 20_000
    buyers = units * 11 // 10
    connections = bench.connections or 50
    result, accepted, place = _sell(bench, units=units, buyers=buyers, connections=connections)
    commits = read_commits(place.activity_id, validity_s=place.validity_s)
    wanted = int(units * 0.99)
    outcome = _outcome(bench, place, result, accepted, commits, connections)
    if commits.count < wanted:
        outcome.errors += wanted - commits.count
        outcome.notes.append(f"only {commits.count} orders")
        return outcome
    seconds = commits.committed_s[wanted - 1] - result["first_sent_epoch_s"]
    outcome.rate_per_s = round(wanted / seconds, 1)
    outcome.more |= {"seconds_to_99_percent": round(seconds, 3)}
    outcome.notes.append(
        f"99 % of {units} orders committed {seconds:.2f} s after the first request;"
        f" accepted at {result['accepted'] / result['seconds']:.0f}/s; the times are the buyers'"
    )
    return outcome


def burst(bench: Bench) -> Outcome:
    """10 000 accepted as fast as the gate takes them, then all of them become orders."""
    buyers = bench.wish.orders or 10_000
    connections = bench.connections or 200
    result, accepted, place = _sell(bench, units=buyers, buyers=buyers, connections=connections)
    commits = read_commits(place.activity_id, validity_s=place.validity_s)
    outcome = _outcome(bench, place, result, accepted, commits, connections)
    outcome.rate_per_s = round(result["accepted"] / result["seconds"], 1)
    late = outcome.latency = commits.lateness
    outcome.p50_ms = late.percentile_ms(50)
    outcome.p95_ms = late.percentile_ms(95)
    outcome.p99_ms = late.percentile_ms(99)
    span = commits.committed_s[-1] - result["first_sent_epoch_s"] if commits.count else 0.0
    outcome.more |= {"all_orders_s": round(span, 3), "orders_per_s": round(commits.rate(), 1)}
    outcome.notes.append(
        f"{result['accepted']} accepted in {result['seconds']:.2f} s, all orders {span:.2f} s after"
        " the first request; the times are from reservation to committed order"
    )
    return outcome


def _sell(
    bench: Bench, *, units: int, buyers: int, connections: int
) -> tuple[dict[str, Any], list[str], Sale]:
    bench.start()
    warm_up(bench)
    place = make_sale(name=f"bench {bench.wish.scenario}", stock=units)
    open_sale(place)
    crowd = let_in(
        bench,
        place,
        buyers=buyers,
        connections=connections,
        say=f"{buyers} buyers, {units} units, {connections} connections",
    )
    accepted, result = crowd.accepted, crowd.result
    result["series"] = {"accepted/s": crowd.accepted_per_s}
    wait_for_orders(bench, place, len(accepted), timeout_s=180, rest=True)
    return result, accepted, place


def _outcome(
    bench: Bench,
    place: Sale,
    result: dict[str, Any],
    accepted: list[str],
    commits: Commits,
    connections: int,
) -> Outcome:
    found, breaches = audit(bench, place, accepted)
    # In `burst` there is a unit for everybody: nobody may be refused.
    right = (ACCEPTED, SOLD_OUT) if bench.wish.scenario == "sale" else (ACCEPTED,)
    answers = sort_answers(result, right=right)
    return Outcome(
        rate_per_s=0.0,
        p50_ms=result["p50_ms"],
        p95_ms=result["p95_ms"],
        p99_ms=result["p99_ms"],
        errors=len(breaches) + answers.errors,
        connections=connections,
        orders=found,
        latency=latency(result),
        series=result["series"]
        | {"orders/s": per_second(commits.committed_s, start=result["first_sent_epoch_s"])},
        more={
            "accepted": len(accepted),
            "orders": commits.count,
            "codes": result["codes"],
            "answers": answers.shown,
            "exact_commit_times": commits.exact,
            "lateness_p99_ms": commits.lateness.percentile_ms(99),
            "breaches": breaches,
        },
    )

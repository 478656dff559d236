"""`hot-sku`: one SKU that everybody wants against 64, the same crowd, in turns on one stack."""

from collections import Counter
from statistics import median
from typing import Any, Final

from bench.answers import sort_answers
from bench.audit import audit, wait_for_orders
from bench.bench import LIFTED, Bench, Outcome
from bench.commits import read_commits
from bench.crowd import let_in
from bench.loadgen.histogram import Histogram
from bench.scenarios.warm_up import warm_up
from seckill.demo.sale import make_sale, open_sale

MANY: Final = 64
_TURNS: Final = (1, MANY, MANY, 1)
_BUYERS: Final = 10_000


def hot_sku(bench: Bench) -> Outcome:
    """Four crowds, everything running: one SKU, 64, 64, one."""
    bench.start()
    warm_up(bench)
    buyers = bench.wish.orders or _BUYERS
    turns = [(skus, _turn(bench, skus=skus, buyers=buyers)) for skus in _TURNS]
    found: Counter[str] = Counter()
    late = Histogram()
    for skus, turn in turns:
        found.update(turn["found"])
        if skus == 1:
            late.merge(turn["late"].sparse())
    answers: Counter[str] = Counter()
    for _, turn in turns:
        answers.update(turn["answers"])
    breaches = [line for _, turn in turns for line in turn["breaches"]]

    def middle(what: str, skus: int) -> float:
        rates: list[float] = [turn[what] for n, turn in turns if n == skus]
        return round(median(rates), 1)

    one, many = middle("orders_per_s", 1), middle("orders_per_s", MANY)
    ratio = round(one / many, 3) if many else 0.0
    return Outcome(
        rate_per_s=one,
        p50_ms=late.percentile_ms(50),
        p95_ms=late.percentile_ms(95),
        p99_ms=late.percentile_ms(99),
        errors=len(breaches) + sum(turn["errors"] for _, turn in turns),
        connections=bench.connections or 200,
        orders=dict(found),
        latency=late,
        more={
            "orders_per_s_by_skus": {"1": one, str(MANY): many},
            "accepted_per_s_by_skus": {
                str(skus): middle("accepted_per_s", skus) for skus in (1, MANY)
            },
            "one_to_many": ratio,
            "buyers": buyers,
            "answers": dict(answers),
            "breaches": breaches,
        },
        notes=[
            f"{buyers} buyers each time: {one:.0f} orders/s on one SKU, {many:.0f} on {MANY}:"
            f" ratio {ratio}",
            "orders/s: from the first request to 99 % of the orders committed",
        ],
    )


def _turn(bench: Bench, *, skus: int, buyers: int) -> dict[str, Any]:
    """Let one crowd in, wait until nothing moves."""
    sale = make_sale(
        name=f"bench {skus} SKUs", stock=buyers, skus=skus, max_open=LIFTED, max_pending=LIFTED
    )
    open_sale(sale)
    crowd = let_in(
        bench,
        sale,
        buyers=buyers,
        connections=bench.connections or 200,
        say=f"{buyers} buyers on {skus} SKU{'s' if skus > 1 else ''}",
    )
    accepted, result = crowd.accepted, crowd.result
    wait_for_orders(bench, sale, len(accepted), timeout_s=180, rest=True)
    commits = read_commits(sale.activity_id, validity_s=sale.validity_s)
    found, breaches = audit(bench, sale, accepted)
    answers = sort_answers(result)
    seconds = commits.reached_s(0.99) - result["first_sent_epoch_s"] if commits.count else 0.0
    return {
        "accepted_per_s": result["accepted"] / result["seconds"],
        "orders_per_s": commits.count * 0.99 / seconds if seconds > 0 else 0.0,
        "late": commits.lateness,
        "found": found,
        "breaches": breaches,
        "answers": answers.shown,
        "errors": answers.errors + max(0, len(accepted) - commits.count),
    }

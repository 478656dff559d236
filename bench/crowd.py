"""A crowd of buyers who each want one reservation of a sale and come again when asked to."""

from dataclasses import dataclass
from typing import Any

from bench.bench import Bench
from bench.loadgen.plan import Plan
from bench.series import Point
from seckill.demo.sale import Sale


@dataclass(frozen=True, kw_only=True)
class Crowd:
    """What became of a crowd.

    Args:
        result: the load generator's.
        accepted: reservation ids answered 202.
        accepted_per_s: over time.
    """

    result: dict[str, Any]
    accepted: list[str]
    accepted_per_s: list[Point]


def let_in(bench: Bench, sale: Sale, *, buyers: int, connections: int, say: str) -> Crowd:
    """Let so many buyers in, over all SKUs of the sale, until each has an answer that is final.

    Args:
        bench: the run.
        sale: opened.
        buyers: how many, each once.
        connections: how many of them wait for an answer at a time.
        say: told when it begins.
    """
    plan = Plan(
        port=bench.rig.port,
        path=sale.path,
        more_paths=[sale.path_of(sku_id) for sku_id in sale.more_skus],
        connections=connections,
        seconds=120,
        users=buyers,
        retry=True,
    )
    with bench.load(plan) as load:
        load.wait_ready(timeout_s=120)
        bench.say(say)
        load.go()
        result = load.result(timeout_s=180)
        return Crowd(
            result=result,
            accepted=load.accepted_ids(),
            accepted_per_s=load.rates("accepted"),
        )

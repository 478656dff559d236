"""Runs a scenario by name. Imports the product: only after the rig has set the environment."""

from collections.abc import Callable
from typing import Final

from bench.bench import Bench, Outcome
from bench.scenarios.accept import accept, sold_out
from bench.scenarios.console import console
from bench.scenarios.drain import drain, drain_full, growth
from bench.scenarios.hot_sku import hot_sku
from bench.scenarios.observability import observability_cost
from bench.scenarios.overload import overload
from bench.scenarios.recovery import recovery
from bench.scenarios.sale import burst, sale
from bench.scenarios.steady import memory, steady

_RUN: Final[dict[str, Callable[[Bench], Outcome]]] = {
    "accept": accept,
    "sold-out": sold_out,
    "drain": drain,
    "drain-full": drain_full,
    "recovery": recovery,
    "steady": steady,
    "hot-sku": hot_sku,
    "memory": memory,
    "growth": growth,
    "sale": sale,
    "burst": burst,
    "console": console,
    "overload": overload,
    "observability-cost": observability_cost,
}


def run(bench: Bench) -> Outcome:
    """Run the scenario that was wished for on a stack that is set up."""
    return _RUN[bench.wish.scenario](bench)

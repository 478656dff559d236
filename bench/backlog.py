"""Accepted while nobody makes orders of it: what `drain`, `recovery` and `growth` begin with."""

import time
from typing import Any, Final

from bench.bench import LIFTED, Bench
from bench.crowd import let_in
from seckill.demo.sale import Sale, look, make_sale, open_sale

CONSUMERS: Final = ("orders", "core", "side")
_VALIDITY_S: Final = 900  # none may expire while it waits


def fill(bench: Bench, backlog: int) -> tuple[Sale, list[str], dict[str, Any]]:
    """Open a sale and let so many buyers in, until all of it is at the broker.

    Returns:
        The sale, the reservation ids answered 202, and the codes of all answers.
    """
    sale = make_sale(
        name="bench backlog",
        stock=LIFTED,
        validity_s=_VALIDITY_S,
        max_open=LIFTED,
        max_pending=LIFTED,
    )
    open_sale(sale)
    crowd = let_in(
        bench,
        sale,
        buyers=backlog,
        connections=bench.connections or 200,
        say=f"{backlog} reservations, consumers off",
    )
    accepted, filled = crowd.accepted, crowd.result
    if len(accepted) < backlog:
        bench.say(f"only {len(accepted)} accepted: {filled['codes']} {filled['errors']}")
    _wait_until_sent(bench, sale)
    return sale, accepted, filled["codes"]


def _wait_until_sent(bench: Bench, sale: Sale) -> None:
    """Wait until the broker has all: the scanner sends what admission's budget did not confirm."""
    deadline = time.monotonic() + 60
    while (pending := look(sale).pending) and time.monotonic() < deadline:
        time.sleep(0.25)
    if pending:
        bench.say(f"{pending} reservations are still not known to be in the broker")

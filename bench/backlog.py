"""Accepted while nobody makes orders of it: what `drain`, `recovery` and `growth` begin with."""

import time
from dataclasses import dataclass
from typing import Any, Final

from bench.answers import Answers, sort_answers
from bench.bench import LIFTED, Bench
from bench.crowd import let_in
from seckill.demo.sale import Sale, look, make_sale, open_sale

CONSUMERS: Final = ("orders", "core", "side")
_VALIDITY_S: Final = 900  # none may expire while it waits


@dataclass(frozen=True, kw_only=True)
class Filled:
    """A backlog: its sale, the reservation ids answered 202, and how all answers were."""

    sale: Sale
    accepted: list[str]
    answers: Answers
    codes: dict[str, int]

    @property
    def shown(self) -> dict[str, Any]:
        """What a record says of it."""
        return {
            "accepted": len(self.accepted),
            "codes": self.codes,
            "answers": self.answers.shown,
        }


def fill(bench: Bench, backlog: int) -> Filled:
    """Open a sale and let so many buyers in, until all of it is at the broker."""
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
    return Filled(
        sale=sale,
        accepted=accepted,
        answers=sort_answers(filled),  # there is a unit for everybody: no refusal is right
        codes=filled["codes"],
    )


def _wait_until_sent(bench: Bench, sale: Sale) -> None:
    """Wait until the broker has all: the scanner sends what admission's budget did not confirm."""
    deadline = time.monotonic() + 60
    while (pending := look(sale).pending) and time.monotonic() < deadline:
        time.sleep(0.25)
    if pending:
        bench.say(f"{pending} reservations are still not known to be in the broker")

"""The sale, told in phases: the rush, paying or not, units that come back, the end."""

import time
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console

from bench.generator import Generator
from seckill.demo.crowd import crowd
from seckill.demo.payers import Payers
from seckill.demo.rig import Rig
from seckill.demo.sale import Numbers, Sale, close_sale, look, make_sale, open_sale
from seckill.demo.screen import Screen

PAY_WINDOW_S: Final = 10
VALIDITY_S: Final = 30
_SHARE_OF_PAYERS: Final = 0.6
_LOOK_EVERY_S: Final = 0.5
_REST_TIMEOUT_S: Final = 90.0


@dataclass(frozen=True, kw_only=True)
class Told:
    """What the story left behind."""

    sale: Sale
    load: dict[str, Any]
    accepted_ids: list[str]
    seconds: float
    at_rest: bool


def tell(rig: Rig, console: Console, *, buyers: int, stock: int) -> Told:
    """Run one sale to its end and wait until nothing moves any more.

    Raises:
        GeneratorFailed: the crowd could not come.
    """
    sale = make_sale(
        name=f"Demo of {time.strftime('%Y-%m-%d %H:%M:%S')}",
        stock=stock,
        validity_s=VALIDITY_S,
        pay_window_s=PAY_WINDOW_S,
    )
    console.print(
        f"activity {sale.activity_id} is warm: {stock} units at the gate", highlight=False
    )
    with crowd(
        sale, buyers=buyers, port=rig.port, folder=rig.folder, environment=rig.environment
    ) as people:
        people.wait_ready()
        with Screen(console, sale=sale, buyers=buyers) as screen:
            began = time.monotonic()
            open_sale(sale)
            screen.phase("open: the rush")
            people.go()
            _sell(sale, people, screen)
            screen.phase("closed: what was accepted is honoured")
            close_sale(sale)
            people.stop()
            load = people.result(timeout_s=30)
            at_rest = _wait_for_rest(sale, people, screen)
            seconds = time.monotonic() - began
        return Told(
            sale=sale,
            load=load,
            accepted_ids=people.accepted_ids(),
            seconds=seconds,
            at_rest=at_rest,
        )


def _sell(sale: Sale, people: Generator, screen: Screen) -> None:
    """Let the crowd buy, pay and forget to pay, until every unit is paid or time is up.

    Unpaid orders are cancelled up to 10 s after their end; then their units are sold again.
    """
    payers = Payers(sale, share=_SHARE_OF_PAYERS)
    began = time.monotonic()
    last = began + PAY_WINDOW_S * 2 + 25
    while (now := time.monotonic()) < last and not people.done:
        payers.everybody = now - began > PAY_WINDOW_S
        payers.pay_some()
        numbers = look(sale)
        screen.phase(_phase(numbers, sale))
        screen.show(numbers, people.progress)
        if numbers.paid >= sale.stock:
            return
        time.sleep(max(0.0, _LOOK_EVERY_S - (time.monotonic() - now)))


def _phase(numbers: Numbers, sale: Sale) -> str:
    if numbers.canceled:
        return "unpaid units return and are sold again"
    if numbers.orders < sale.stock:
        return "open: the rush"
    return f"sold out: {PAY_WINDOW_S} s to pay, then a unit goes to somebody else"


def _wait_for_rest(sale: Sale, people: Generator, screen: Screen) -> bool:
    """Wait until every reservation has its outcome and every order is paid or cancelled."""
    deadline = time.monotonic() + _REST_TIMEOUT_S
    while time.monotonic() < deadline:
        numbers = look(sale)
        screen.show(numbers, people.progress)
        if numbers.at_rest and not numbers.unpaid:
            return True
        time.sleep(_LOOK_EVERY_S / 2)
    return False

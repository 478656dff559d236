"""`bin/demo --incident`: a sale in which something goes wrong, and what is left for people.

A deploy that misreads some buyers, two kinds of poison, five seconds without a database. The last
leaves nothing behind; the others leave dead messages, each holding its buyer's unit. Walk on in
docs/operations/dlq.md.
"""

import json
import os
import select
import signal
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field, replace
from typing import Any, Final

from django.db import connection
from rich.console import Console
from rich.table import Table

from bench.generator import Generator
from seckill.admission.tokens import issue
from seckill.demo.crowd import crowd
from seckill.demo.desk import Person, seed_people
from seckill.demo.payers import Payers
from seckill.demo.poison import buy_poisoned, cut_off, newer_schema
from seckill.demo.result import KEYS, check_invariants, promised
from seckill.demo.rig import Rig
from seckill.demo.sale import Sale, close_sale, look, make_sale, open_sale
from seckill.demo.supervision import Program

VALIDITY_S: Final = 1_800
MISREAD: Final = tuple(
    f"{name}@example.com" for name in ("ana", "ben", "cleo", "dan", "eva", "finn", "gil", "hana")
)
FROM_TOMORROW: Final = ("canary-1", "canary-2")
CUT_OFF: Final = ("proxy-1",)
OUTAGE_S: Final = 5
FIXED: Final = "orders-fixed"
_SHARE_OF_PAYERS: Final = 0.7
_OPEN_TICKETS: Final = "SELECT count(*) FROM dlq_ticket WHERE status = 'NEW'"


@dataclass(kw_only=True)
class Told:
    """What happened."""

    sale: Sale
    people: list[Person]
    accepted_ids: list[str] = field(default_factory=list)
    load: dict[str, Any] = field(default_factory=dict)
    tickets: int = 0


def faulty_build(program: Program) -> Program:
    """Let the order consumers be build 1 with its mistake."""
    if program.name != "orders":
        return program
    argv = (sys.executable, "-m", "seckill.demo.faulty_consumer")
    return replace(program, argv=argv, environment={**program.environment, "SECKILL_BUILD": "1"})


def fixed_build(programs: tuple[Program, ...]) -> tuple[Program, ...]:
    """Return the order consumers of build 2, which wait to be deployed."""
    return tuple(
        replace(
            program,
            name=FIXED,
            autostart=False,
            environment={**program.environment, "SECKILL_BUILD": "2"},
        )
        for program in programs
        if program.name == "orders"
    )


def unfold(rig: Rig, console: Console, *, buyers: int, stock: int) -> Told:
    """Sell, and let it go wrong.

    Raises:
        GeneratorFailed: the crowd could not come.
        RuntimeError: the incident did not happen as it should.
    """
    people = seed_people()
    sale = make_sale(
        name=f"Incident of {time.strftime('%Y-%m-%d %H:%M:%S')}",
        stock=stock,
        validity_s=VALIDITY_S,
        pay_window_s=3_600,
    )
    told = Told(sale=sale, people=people)
    held = len(MISREAD) + len(FROM_TOMORROW) + len(CUT_OFF)
    with crowd(
        sale, buyers=buyers, port=rig.port, folder=rig.folder, environment=rig.environment
    ) as mob:
        mob.wait_ready()
        open_sale(sale)
        console.print(
            f"     open: {stock} units; build 1 of the order consumer misreads ids with @"
        )
        told.accepted_ids += [_buy(rig, sale, user) for user in MISREAD]
        console.print("     poison: a canary writes tomorrow's schema, a proxy cuts a body off")
        for users, spoil in ((FROM_TOMORROW, newer_schema), (CUT_OFF, cut_off)):
            told.accepted_ids += [
                reservation.reservation_id for reservation in buy_poisoned(sale, users, spoil=spoil)
            ]
        mob.go()
        _outage(rig, console)
        _sell(sale, mob, held=held)
        close_sale(sale)
        mob.stop()
        told.load = mob.result(timeout_s=30)
        told.accepted_ids += mob.accepted_ids()
    told.tickets = _wait_for_tickets(3)
    return told


def report(told: Told, *, environment: dict[str, str]) -> dict[str, Any]:
    """Add up; held reservations have an open ticket, so nobody is lost."""
    found = check_invariants(told.sale.activity_id, environment=environment)
    lost, broken = promised(told.accepted_ids)
    result = {key: found.get(key, 0) for key in KEYS} | {
        "accepted": len(told.accepted_ids),
        "sold_out": told.load["codes"].get("409 SOLD_OUT", 0),
        "lost": max(lost, int(found.get("lost", 0))),
        "broken": max(broken, int(found.get("broken", 0))),
    }
    breaches = list(found.get("breaches", []))
    breaches += [f"{key} is {result[key]}" for key in ("lost", "broken", "oversold") if result[key]]
    if told.tickets < 3:
        breaches.append(f"{told.tickets} tickets are open, there should be 3")
    return result | {
        "breaches": breaches,
        "activity": told.sale.activity_id,
        "tickets": told.tickets,
        "report": found,
    }


def show(console: Console, told: Told, result: dict[str, Any], *, base_url: str) -> None:
    """Print what is left for people, who they are and where they work."""
    table = Table(title="The desk", title_justify="left", width=78)
    for heading in ("user", "password", "role", "does"):
        table.add_column(heading)
    for person in told.people:
        table.add_row(person.name, person.password, person.role, person.does)
    console.print(
        f"{result['accepted']} accepted, {result['orders']} orders; {told.tickets} tickets are"
        " open: their buyers' units are held, nobody is lost",
        soft_wrap=True,
    )
    for breach in result["breaches"]:
        console.print(f"breach: {breach}", style="red", soft_wrap=True)
    console.print(table)
    console.print(f"the desk       {base_url}/admin/dlq/")
    console.print("the walk       docs/operations/dlq.md")


def wait_to_deploy(rig: Rig, console: Console) -> None:
    """Wait for Enter (or SIGUSR1), then put build 2 in the place of build 1."""
    asked: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, frame: asked.append(number))
    console.print(
        f"\nEnter (or kill -USR1 {os.getpid()}) deploys build 2 of the order consumer, which reads"
        " ids with @.",
        style="bold",
        soft_wrap=True,
    )
    terminal = [sys.stdin] if sys.stdin.isatty() else []
    while not asked:
        ready, _, _ = select.select(terminal, [], [], 0.5)
        if ready:
            sys.stdin.readline()
            break
    rig.supervisor.stop_program("orders")
    rig.supervisor.start_program(FIXED)
    console.print("build 2 runs: its heartbeat shows at the ticket within seconds")


def _buy(rig: Rig, sale: Sale, user: str) -> str:
    """Buy as a browser would; returns the reservation."""
    request = urllib.request.Request(  # noqa: S310  (our own address)
        f"{rig.base_url}{sale.path}",
        data=b'{"quantity": 1}',
        headers={
            "Authorization": f"Bearer {issue(user, use='access', lifetime_s=600)}",
            "Content-Type": "application/json",
            "Idempotency-Key": f"incident-{sale.activity_id}-{user.partition('@')[0]}",
        },
    )
    for wait_s in (0.2, 0.5, 1.0, 0.0):
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310
                return str(json.loads(answer.read())["reservation_id"])
        except urllib.error.HTTPError as error:
            if error.code != 503 or not wait_s:
                raise RuntimeError(f"{user} could not buy: {error.code}") from None
            time.sleep(wait_s)
    raise AssertionError("unreachable: the last try returns or raises")


def _outage(rig: Rig, console: Console) -> None:
    """Take the database away for a while; one that is not ours is left alone."""
    if "postgres" in rig.stack.external.services:
        return
    time.sleep(1.0)
    console.print(f"     PostgreSQL goes away for {OUTAGE_S} s: consumers wait, nothing dies")
    connection.close()
    rig.stack.stop("postgres")
    time.sleep(OUTAGE_S)
    rig.stack.start("postgres")


def _sell(sale: Sale, mob: Generator, *, held: int) -> None:
    """Wait until everybody but the held has an order; most pay."""
    payers = Payers(sale, share=_SHARE_OF_PAYERS)
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        payers.pay_some()
        numbers = look(sale)
        if (numbers.left_at_gate == 0 or mob.done) and numbers.open <= held:
            return
        time.sleep(0.5)


def _wait_for_tickets(wanted: int) -> int:
    deadline = time.monotonic() + 30
    while True:
        with connection.cursor() as cursor:
            cursor.execute(_OPEN_TICKETS)
            count = int(cursor.fetchone()[0])
        if count >= wanted or time.monotonic() > deadline:
            return count
        time.sleep(0.5)

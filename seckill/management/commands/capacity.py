"""`manage.py capacity`: what a planned sale needs, beside what there is, and what breaks first."""

import json
import sys
from argparse import ArgumentParser
from dataclasses import fields
from io import StringIO
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from rich.console import Console
from rich.table import Table

from seckill.capacity.plan import Numbers, Plan, plan
from seckill.management.numbers import above_zero, not_negative

_SETTINGS = {
    "safe_transactions": "SECKILL_SAFE_TRANSACTIONS",
    "workers_max": "SECKILL_CONSUMER_WORKERS_MAX",
    "batch": "SECKILL_BATCH_MAX",
    "slo_s": "SECKILL_ORDER_SLO_S",
    "max_open": "SECKILL_MAX_OPEN",
}
_DIVISORS = {"batch", "queue_per_s"}  # what formulas divide by: never 0
_HELP = {
    "entry_per_s": "reservations accepted a second during the burst",
    "burst_s": "how long the burst lasts",
    "steady_per_s": "accepted a second after the burst",
    "consume_per_s": "orders a second that all consumers make (bin/bench drain-full)",
    "transaction_s": "p99 of one order transaction",
    "batch": "orders in one transaction",
    "network_s": "everything else between reservation and order",
    "slo_s": "from reservation to order",
    "validity_s": "of a reservation",
    "messages_each": "messages sent for one order",
    "groups": "groups that read a message, on average",
    "message_bytes": "of one message",
    "replicas": "copies at the broker",
    "retention_h": "hours that the broker keeps messages",
    "orders_per_day": "for the broker's storage and the daily peak",
    "peak_factor": "the day's peak rate over its mean",
    "overhead": "factor for index, delay, retries, dead letters",
    "reserve": "share on top of rates and storage",
    "queue_per_s": "messages a second of one queue",
    "queues": "of the creation topic",
    "safe_transactions": "that the database bears (manage.py calibrate_budget)",
    "instances": "processes of the order group",
    "workers_max": "loops in one of them",
    "gate_per_s": "reservations a second that admission and gate make; 0: not judged",
    "max_open": "reservations without an outcome that the gate allows",
    "network_mb_s": "of the broker's machine; 0: not judged",
    "disk_gb": "of all brokers together; 0: not judged",
}


class Command(BaseCommand):
    help = (
        "Works the formulas for given numbers and says what breaks first. What is not given is the "
        "source documents' example or this installation's setting. Exit 1 when something breaks."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        for field in fields(Numbers):
            name = _SETTINGS.get(field.name)
            number = above_zero if field.name in _DIVISORS else not_negative
            default = getattr(settings, name) if name else field.default
            parser.add_argument(
                f"--{field.name.replace('_', '-')}",
                type=number(int if field.type is int else float),
                default=default,
                metavar="N",
                help=f"{_HELP[field.name]} (default {default:g})",
            )
        parser.add_argument("--json", action="store_true", help="print JSON instead of a table")

    def handle(self, *args: Any, **options: Any) -> None:
        numbers = Numbers(**{field.name: options[field.name] for field in fields(Numbers)})
        found = plan(numbers)
        if options["json"]:
            self.stdout.write(json.dumps(found.as_json(), indent=1))
        else:
            self.stdout.write(_text(found))
        if found.breaks_first:
            sys.exit(1)


def _text(found: Plan) -> str:
    table = Table(title="capacity", title_justify="left")
    for name, side in (
        ("resource", "left"),
        ("need", "right"),
        ("have", "right"),
        ("load", "right"),
    ):
        table.add_column(name, justify=side)  # type: ignore[arg-type]
    table.add_column("formula", style="dim")
    for row in found.rows:
        load = row.load
        style = "red" if load is not None and load > 1 else None
        table.add_row(
            row.name,
            "never" if row.need == float("inf") else f"{_short(row.need)} {row.unit}",
            _short(row.have) if row.have > 0 else "not given",
            "" if load is None else "∞" if load == float("inf") else f"{load:.0%}",
            row.formula,
            style=style,
        )
    console = Console(width=150, file=StringIO())
    with console.capture() as text:
        console.print(table)
    drains = "never" if found.drain_s == float("inf") else f"{found.drain_s:.1f} s"
    verdict = f"breaks first: {found.breaks_first}" if found.breaks_first else "nothing breaks"
    return f"{text.get()}the burst's backlog is gone after {drains}; {verdict}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

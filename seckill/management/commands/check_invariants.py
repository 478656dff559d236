"""`manage.py check_invariants`: proves that nothing was oversold, lost or doubled."""

import argparse
import json
import shutil
from collections.abc import Sequence
from io import StringIO
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from rich.console import Console
from rich.table import Table

from orders.invariants import Report, check
from orders.payments.money import MoneyRow


class Command(BaseCommand):
    help = (
        "Checks PostgreSQL against itself (one snapshot), Redis against PostgreSQL, and at rest "
        "their totals. Exits 1 on a breach; a sale in motion is no breach."
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--activity", type=int, help="only this sale; default: all")
        parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
        parser.add_argument(
            "--at-rest",
            action="store_true",
            help="everything is at rest: compare with the gate what is younger than 10 s, too",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            report = check(options["activity"], young_ms=0 if options["at_rest"] else None)
        except LookupError as error:
            raise CommandError(str(error)) from None
        if options["json"]:
            self.stdout.write(json.dumps(report.as_json(), indent=2))
        else:
            text = StringIO()
            columns = shutil.get_terminal_size((120, 40)).columns
            _print(report, Console(file=text, width=columns, force_terminal=self.stdout.isatty()))
            self.stdout.write(text.getvalue())
        if report.breaches:
            raise SystemExit(1)


def _print(report: Report, console: Console) -> None:
    table = Table(title="Conservation of units")
    for column in (
        "sale",
        "initial",
        "+ top-ups",
        "- cuts",
        "= available",
        "+ live",
        "+ withheld",
        "orders",
        "paid",
        "canceled",
        "rejected",
        "oversold",
    ):
        table.add_column(column, justify="left" if column == "sale" else "right")
    for sale in report.sales:
        numbers = (
            sale.initial,
            sale.topped_up,
            sale.cut,
            sale.available,
            sale.live_units,
            sale.withheld,
            sale.orders,
            sale.paid,
            sale.canceled,
            sum(sale.rejected.values()),
            sale.oversold,
        )
        table.add_row(f"{sale.activity_id} {sale.name}", *(str(number) for number in numbers))
    console.print(table)
    if report.money:
        console.print(_money_table(report.money))
    for sale in report.sales:
        for reason in sale.motion:
            console.print(f"sale {sale.activity_id} is in motion: {reason}")
    if not report.breaches:
        console.print("[green]no breach[/green]")
        return
    breaches = Table(title="Breaches")
    for column in ("what", "sale", "count", "rule", "for example"):
        breaches.add_column(column, overflow="fold")
    for breach in report.breaches:
        breaches.add_row(
            breach.kind,
            "" if breach.activity_id is None else str(breach.activity_id),
            str(breach.count),
            breach.rule,
            " ".join(breach.samples[:3]),
        )
    console.print(breaches)


def _money_table(rows: Sequence[MoneyRow]) -> Table:
    table = Table(title="Money, in cents")
    for column in ("currency", "in", "= kept", "+ refunded", "+ refund due", "unclear"):
        table.add_column(column, justify="left" if column == "currency" else "right")
    for row in rows:
        unclear = row.payment_unknown + row.refund_unknown
        numbers = (row.money_in, row.kept, row.refunded, row.refund_due, unclear)
        table.add_row(row.currency, *(str(number) for number in numbers))
    return table

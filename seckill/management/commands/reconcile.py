"""`manage.py reconcile`: finds differences between the stores, repairs what is provable."""

import json
import shutil
from dataclasses import asdict
from io import StringIO
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from rich.console import Console
from rich.table import Table

from orders.reconcile.difference import Action
from orders.reconcile.run import Report, reconcile


class Command(BaseCommand):
    help = (
        "Compares gate, reservations, inbox, orders, ledger, stock, payments and refunds. Without"
        " --repair it only looks. Exits 1 while a difference is left that nothing repaired."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--repair",
            action="store_true",
            help="repair what is proven, open an item for everything else; audited",
        )
        parser.add_argument("--activity", type=int, help="only this sale; default: all")
        parser.add_argument("--json", action="store_true", help="print JSON instead of a table")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            report = reconcile(
                activity_id=options["activity"],
                repair=options["repair"],
                started_by="manage.py reconcile",
            )
        except LookupError as error:
            raise CommandError(str(error)) from None
        if options["json"]:
            self.stdout.write(json.dumps(_as_json(report), indent=2))
        else:
            text = StringIO()
            columns = shutil.get_terminal_size((120, 40)).columns
            _print(report, Console(file=text, width=columns, force_terminal=self.stdout.isatty()))
            self.stdout.write(text.getvalue())
        left = len(report.lines) - report.count(Action.REPAIRED, Action.GONE)
        if left or report.failed:
            raise SystemExit(1)


def _as_json(report: Report) -> dict[str, Any]:
    return {
        "run": report.run_id,
        "found": len(report.lines),
        "repaired": report.count(Action.REPAIRED),
        "ticketed": report.count(Action.TICKET),
        "changed": report.changed,
        "failed": list(report.failed),
        "differences": [asdict(line) for line in report.lines],
    }


def _print(report: Report, console: Console) -> None:
    for reason in report.failed:
        console.print(f"[red]could not look: {reason}[/red]")
    if not report.lines:
        console.print("[green]no difference[/green]")
        return
    table = Table(title=f"Differences of run {report.run_id}")
    for column in ("kind", "sale", "what", "detail", "action"):
        # A folded kind could not be searched for.
        table.add_column(column, overflow="fold", no_wrap=column == "kind")
    for line in report.lines:
        table.add_row(
            line.kind,
            "" if line.activity_id is None else str(line.activity_id),
            line.subject,
            line.detail,
            f"{line.action} {line.note}".strip(),
        )
    console.print(table)

"""`manage.py preflight ACTIVITY`: may this sale be opened?"""

import argparse
from typing import Any, TextIO, cast

from django.core.management.base import BaseCommand
from rich.console import Console
from rich.table import Table

from seckill import preflight


class Command(BaseCommand):
    help = (
        "Checks everything that a sale needs, one red or green line each: database, migrations, "
        "topics, consumers, clocks, durability of Redis, disk, price, window, limits, partitions. "
        "Changes nothing. Exit code 1 when a line is red."
    )
    requires_system_checks: tuple[str, ...] = ()  # they are a line of the table

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("activity", type=int, help="id of the sale")

    def handle(self, *args: Any, **options: Any) -> None:
        checks = preflight.run(options["activity"])
        table = Table("check", "", "found", title=f"preflight of sale {options['activity']}")
        for check in checks:
            found = f"{check.found}\n[dim]{check.hint}[/dim]" if check.hint else check.found
            table.add_row(check.name, "[green]ok[/]" if check.ok else "[bold red]RED[/]", found)
        Console(file=cast(TextIO, self.stdout)).print(table)
        red = sum(not check.ok for check in checks)
        if red:
            self.stderr.write(f"{red} red: do not open this sale yet")
            raise SystemExit(1)
        self.stdout.write("all green")

"""`manage.py export_orders`: orders as CSV."""

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from inventory.selectors import activity_record
from orders.export import csv_lines


class Command(BaseCommand):
    help = "Write orders as CSV to standard output or a file; cells are safe against formulas."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--activity", type=int, metavar="ID", help="one sale only")
        parser.add_argument("--out", type=Path, metavar="FILE", help="instead of standard output")

    def handle(self, *args: Any, **options: Any) -> None:
        activity_id = options["activity"]
        if activity_id is not None and activity_record(activity_id) is None:
            raise CommandError(f"there is no activity {activity_id}")
        lines = csv_lines(activity_id=activity_id)
        if options["out"] is None:
            for piece in lines:
                sys.stdout.write(piece)
            return
        try:
            with options["out"].open("w", newline="") as file:
                file.writelines(lines)
        except OSError as error:
            raise CommandError(f"cannot write {options['out']}: {error.strerror}") from error

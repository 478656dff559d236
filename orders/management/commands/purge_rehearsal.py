"""`manage.py purge_rehearsal`: remove a test sale."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from inventory.errors import GateUnavailable
from orders.rehearsal import RehearsalRefused, purge_rehearsal


class Command(BaseCommand):
    help = (
        "Remove everything that a rehearsal (a sale with is_test, CLOSED or SETTLED, at rest) left "
        "in PostgreSQL and at the gate. Without --yes it only shows what would go."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("activity", type=int, metavar="ACTIVITY")
        parser.add_argument("--yes", action="store_true", help="do it: this cannot be undone")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            report = purge_rehearsal(activity_id=options["activity"], dry_run=not options["yes"])
        except (RehearsalRefused, GateUnavailable) as error:
            raise CommandError(str(error)) from None
        verb = "deleted" if options["yes"] else "would delete"
        self.stdout.write(f"{verb} of “{report.name}”:")
        for table, count in report.rows.items():
            self.stdout.write(f"  {count:8} {table}")
        if options["yes"]:
            self.stdout.write(f"  {report.gate_keys:8} keys of the gate")
        else:
            self.stdout.write("nothing was changed: repeat with --yes")

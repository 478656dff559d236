"""`manage.py emergency_stop ACTIVITY`: no new reservation from now on."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from inventory import operations
from inventory.errors import OperationRefused
from inventory.management.confirm import require_yes
from inventory.selectors import activity_record, operation_status


class Command(BaseCommand):
    help = (
        "Stops new reservations of a sale at once, in PostgreSQL and at the gate. What was "
        "accepted is honoured. May be repeated."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("activity", type=int, help="number of the sale")
        parser.add_argument("--reason", default="manage.py emergency_stop", help="for the audit")
        parser.add_argument("--dry-run", action="store_true", help="only say what it would do")
        parser.add_argument("--yes", action="store_true", help="do not ask")

    def handle(self, *args: Any, **options: Any) -> None:
        record = activity_record(options["activity"])
        if record is None:
            raise CommandError(f"there is no activity {options['activity']}")
        what = f"activity {record.activity_id} {record.name!r} ({record.status})"
        if options["dry_run"]:
            self.stdout.write(f"would stop {what}")
            return
        if not options["yes"]:
            require_yes(f"Stop {what}?")
        try:
            operation_id = operations.request_stop(
                activity_id=record.activity_id, reason=options["reason"]
            )
        except OperationRefused as error:
            raise CommandError(str(error)) from error
        status, note = operation_status(operation_id)
        if status != "DONE":
            raise CommandError(
                f"{operation_id} is {status} {note}: PostgreSQL says CLOSED, the gate does not "
                "know yet; the scanner repeats it"
            )
        self.stdout.write(f"{operation_id} DONE: {what} is stopped")

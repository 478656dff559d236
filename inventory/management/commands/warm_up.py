"""`manage.py warm_up ACTIVITY`: book the initial stock and load it into the gate."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from inventory import operations
from inventory.errors import OperationRefused
from inventory.selectors import activity_record, operation_status


class Command(BaseCommand):
    help = (
        "Books the initial stock of a sale in PostgreSQL and loads it into the gate, CLOSED. "
        "May be repeated until the sale is opened."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("activity", type=int, help="number of the sale")
        parser.add_argument("--dry-run", action="store_true", help="only say what it would do")

    def handle(self, *args: Any, **options: Any) -> None:
        record = activity_record(options["activity"])
        if record is None:
            raise CommandError(f"there is no activity {options['activity']}")
        units = ", ".join(f"SKU {sku.sku_id}: {sku.initial_units}" for sku in record.skus)
        if options["dry_run"]:
            self.stdout.write(f"{record.status}: would load {units}")
            return
        try:
            operation_id = operations.warm_up(
                activity_id=record.activity_id, reason="manage.py warm_up"
            )
        except OperationRefused as error:
            raise CommandError(str(error)) from error
        status, note = operation_status(operation_id)
        if status != "DONE":
            raise CommandError(
                f"{operation_id} is {status} {note}: the gate was not loaded; the scanner goes on"
            )
        self.stdout.write(f"{operation_id} DONE: loaded {units}")

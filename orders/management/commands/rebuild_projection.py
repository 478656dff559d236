"""`manage.py rebuild_projection`: make the read model equal to the orders."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from inventory.selectors import activity_record
from orders import query


class Command(BaseCommand):
    help = (
        "Compare orders_query with the orders and repair it, in pages of 5 000, while everything "
        "runs. --dry-run only counts the differences and exits 1 when there are any."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--activity", type=int, metavar="ID", help="one sale only")
        parser.add_argument("--dry-run", action="store_true", help="count, write nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        activity_id = options["activity"]
        if activity_id is not None and activity_record(activity_id) is None:
            raise CommandError(f"there is no activity {activity_id}")
        report = query.rebuild(activity_id=activity_id, dry_run=options["dry_run"])
        self.stdout.write(
            f"{report.orders} orders: {report.missing} missing, {report.behind} behind, "
            f"{report.different} different, {report.strays} without an order; "
            f"{report.repaired} repaired"
        )
        found = report.missing + report.behind + report.different + report.strays
        if options["dry_run"] and found:
            raise SystemExit(1)

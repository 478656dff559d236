"""`manage.py run_retention`: export and drop the days that nobody needs any more."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from messaging import retention


class Command(BaseCommand):
    help = (
        "Drop days of inbox, outbox and event archive that are past their horizon, as the Celery "
        "schedule does. A day with unsent or unresolved rows stays; the archive's days go to files "
        "first. Exits 1 when a day past its horizon had to stay."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="show, change nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        report = retention.run(dry_run=options["dry_run"])
        verb = "would drop" if options["dry_run"] else "dropped"
        for name in report.dropped:
            self.stdout.write(f"{verb} {name}")
        for file in report.exported:
            self.stdout.write(f"wrote {file}")
        for item in report.refused:
            self.stderr.write(f"kept {item.partition}: {item.reason}")
        if report.refused:
            raise SystemExit(1)

"""`manage.py ensure_partitions`: make the days that the partitioned tables will need."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from messaging import partitions


class Command(BaseCommand):
    help = (
        "Make the missing days of inbox, outbox and event archive, as the Celery schedule does. "
        "Exits 1 when a day could not be made."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        report = partitions.ensure_partitions(settings.SECKILL_PARTITION_DAYS_AHEAD)
        self.stdout.write(f"{len(report.made)} days made, {partitions.days_left()} days ahead")
        for name in report.failed:
            self.stderr.write(f"not made: {name}")
        if report.failed:
            raise SystemExit(1)

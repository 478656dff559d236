"""Scheduled work of messaging (see seckill/celery.py)."""

from celery import shared_task
from django.conf import settings

from messaging import metrics, partitions


@shared_task(name="messaging.tasks.keep_partitions")
def keep_partitions() -> int:
    """Make the days that inbox and outbox will need; returns how many are ready after today."""
    partitions.ensure_partitions(settings.SECKILL_PARTITION_DAYS_AHEAD)
    left = partitions.days_left()
    metrics.PARTITION_DAYS_LEFT.set(left)
    for table, rows in partitions.default_rows().items():
        metrics.DEFAULT_ROWS.labels(table).set(rows)
    return left

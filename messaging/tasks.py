"""Scheduled work of messaging (see seckill/celery.py)."""

from celery import shared_task
from django.conf import settings

from messaging import metrics, partitions, retention


@shared_task(name="messaging.tasks.keep_partitions")
def keep_partitions() -> int:
    """Make the days that the partitioned tables will need; returns how many are ready."""
    partitions.ensure_partitions(settings.SECKILL_PARTITION_DAYS_AHEAD)
    left = partitions.days_left()
    metrics.PARTITION_DAYS_LEFT.set(left)
    for table, rows in partitions.default_rows().items():
        metrics.DEFAULT_ROWS.labels(table).set(rows)
    return left


@shared_task(name="messaging.tasks.drop_old_days")
def drop_old_days() -> int:
    """Export and drop the days past their horizon; returns how many went."""
    return len(retention.run().dropped)

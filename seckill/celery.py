"""Celery: schedules only (partitions, retention, mail, later SLA); never in the order path.

`celery -A seckill worker --beat` runs them all.
"""

import os

from celery import Celery
from celery.schedules import crontab
from celery.signals import worker_ready

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "seckill.settings")

app = Celery("seckill")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.conf.beat_schedule = {
    "verify-audit": {
        "task": "dlq_admin.tasks.verify_audit",
        "schedule": crontab(minute="37"),
        "options": {"expires": 3_000},
    },
    "anchor-audit": {
        "task": "dlq_admin.tasks.anchor_audit",
        "schedule": crontab(minute="7"),
        "options": {"expires": 1800},
    },
    "reconcile": {
        "task": "orders.tasks.reconcile_all",
        "schedule": crontab(minute="*/10"),
        "options": {"expires": 600},
    },
    "compare-books": {
        "task": "orders.tasks.compare_books",
        "schedule": crontab(minute="13", hour="*/6"),
        "options": {"expires": 3_600},
    },
    "delete-settled-gates": {
        "task": "orders.tasks.delete_settled_gates",
        "schedule": crontab(minute="23", hour="4"),
    },
    # Every six hours, so that a missed run costs nothing: the window is 14 days.
    "ensure-partitions": {
        "task": "messaging.tasks.keep_partitions",
        "schedule": crontab(minute="17", hour="*/6"),
    },
    "drop-old-days": {
        "task": "messaging.tasks.drop_old_days",
        "schedule": crontab(minute="41", hour="3"),
    },
    "delete-old-decisions": {
        "task": "seckill.tasks.delete_old_decisions",
        "schedule": crontab(minute="53", hour="3"),
    },
    "forget-submissions": {
        "task": "dlq_admin.tasks.forget_submissions",
        "schedule": crontab(minute="11", hour="4"),
    },
    "keep-dlq-promises": {
        "task": "dlq_admin.tasks.keep_promises",
        "schedule": 15.0,
        "options": {"expires": 15.0},
    },
    "send-notifications": {
        "task": "orders.tasks.send_notifications",
        "schedule": 5.0,
        "options": {"expires": 5.0},  # a slow mail server piles nothing up
    },
}


@worker_ready.connect
def serve_metrics(**_: object) -> None:
    """Answer /metrics on SECKILL_METRICS_PORT, like every other process."""
    from django.conf import settings
    from prometheus_client import start_http_server

    if settings.SECKILL_METRICS_PORT:
        start_http_server(settings.SECKILL_METRICS_PORT, addr=settings.SECKILL_METRICS_HOST)


@worker_ready.connect
def keep_partitions_at_start(**_: object) -> None:
    """Make missing days as soon as a worker is up, whatever the schedule says."""
    app.send_task("messaging.tasks.keep_partitions")

"""Scheduled work of orders (see seckill/celery.py)."""

from celery import shared_task

from orders import notifications


@shared_task(name="orders.tasks.send_notifications")
def send_notifications() -> int:
    """Send the queued mails; returns how many went out."""
    return notifications.send_due().sent

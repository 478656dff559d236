"""Scheduled work of orders (see seckill/celery.py)."""

from celery import shared_task

from orders import notifications
from orders.payments import books
from orders.reconcile.retention import drop_old_runs
from orders.reconcile.run import reconcile
from orders.settlement.cleanup import delete_old_gates


@shared_task(name="orders.tasks.send_notifications")
def send_notifications() -> int:
    """Send the queued mails; returns how many went out."""
    return notifications.send_due().sent


@shared_task(name="orders.tasks.reconcile_all")
def reconcile_all() -> int:
    """Compare the stores, repair what is provable, ticket the rest; returns how many it changed."""
    drop_old_runs()
    return reconcile(repair=True, started_by="schedule").changed


@shared_task(name="orders.tasks.compare_books")
def compare_books() -> int:
    """Lay the payment providers' books beside ours; returns how many entries differ."""
    return books.compare_all()


@shared_task(name="orders.tasks.delete_settled_gates")
def delete_settled_gates() -> int:
    """Delete the gate keys of sales settled long ago; returns how many sales it were."""
    return delete_old_gates()

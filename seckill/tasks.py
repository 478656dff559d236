"""Scheduled work of the project itself (see seckill/celery.py)."""

from celery import shared_task

from seckill.governor import history


@shared_task(name="seckill.tasks.delete_old_decisions")
def delete_old_decisions() -> int:
    """Delete decisions of the governor past their days; returns how many went."""
    return history.delete_old()

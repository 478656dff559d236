"""Making a sale, and whether it is ready to be warmed up."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.utils import timezone

from inventory.errors import OperationRefused
from inventory.models import Activity, Sku
from inventory.states import ActivityStatus


@dataclass(frozen=True, kw_only=True, slots=True)
class NewSku:
    """A SKU to put on sale."""

    name: str
    price_cents: int
    initial_units: int
    currency: str = "EUR"
    limit_per_user: int = 1


def create_activity(
    *,
    name: str,
    starts_at: datetime,
    ends_at: datetime,
    skus: Sequence[NewSku],
    validity_s: int = 300,
    pay_window_s: int = 900,
    max_open: int = 20_000,
    max_pending: int = 2_000,
    is_test: bool = False,
    user: User | None = None,
) -> int:
    """Make a sale in DRAFT with its SKUs and return its id.

    Args:
        name: for people.
        starts_at: first instant of the sale.
        ends_at: first instant after it.
        skus: what is sold, at least one.
        validity_s: how long an accepted buyer's units are kept while his order is made.
        pay_window_s: how long an order may stay unpaid, at most 23 h.
        max_open: reservations without an outcome; more answer BUSY.
        max_pending: reservations not known to be in the broker; more answer BUSY.
        is_test: a rehearsal, left out of reports.
        user: who asks; None is the system itself.

    Raises:
        PermissionDenied: the user may not add activities.
        ValidationError: a value that the models refuse.
        OperationRefused: no SKU.
    """
    if user is not None and not user.has_perm("inventory.add_activity"):
        raise PermissionDenied("inventory.add_activity")
    if not skus:
        raise OperationRefused("a sale needs at least one SKU")
    with transaction.atomic():
        activity = Activity(
            name=name,
            starts_at=starts_at,
            ends_at=ends_at,
            validity_s=validity_s,
            pay_window_s=pay_window_s,
            max_open=max_open,
            max_pending=max_pending,
            is_test=is_test,
        )
        activity.full_clean()
        activity.save()
        for new in skus:
            sku = Sku(
                activity=activity,
                name=new.name,
                price_cents=new.price_cents,
                currency=new.currency,
                limit_per_user=new.limit_per_user,
                initial_units=new.initial_units,
            )
            sku.full_clean()
            sku.save()
    return int(activity.pk)


def exists(activity_id: int) -> bool:
    """Tell whether there is such a sale."""
    return Activity.objects.filter(pk=activity_id).exists()


def mark_voided(*, activity_id: int, now: datetime) -> None:
    """Declare a sale void inside the caller's transaction; who may is the caller's affair.

    From its commit on the order transaction rejects everything that is still in flight.

    Raises:
        OperationRefused: it is a draft, settled, or void already.
    """
    changed = (
        Activity.objects.filter(pk=activity_id, voided_at__isnull=True)
        .exclude(status__in=[ActivityStatus.DRAFT, ActivityStatus.SETTLED])
        .update(voided_at=now)
    )
    if not changed:
        raise OperationRefused(f"activity {activity_id} is a draft, settled, or void already")


def mark_settled(*, activity_id: int, version: int) -> None:
    """Settle a closed sale inside the caller's transaction; who may is the caller's affair.

    Args:
        activity_id: the sale.
        version: its version when it was found to be at rest; every operators' change raises it.

    Raises:
        OperationRefused: it is not CLOSED, changed meanwhile, or its gate is being rebuilt.
    """
    changed = Activity.objects.filter(
        pk=activity_id,
        status=ActivityStatus.CLOSED,
        version=version,
        rebuild_unfinished=False,
        loss_noted_at__isnull=True,
    ).update(status=ActivityStatus.SETTLED, version=version + 1)
    if not changed:
        raise OperationRefused(f"activity {activity_id} is not CLOSED any more, or has changed")


def require_ready(activity: Activity, skus: Sequence[Sku]) -> None:
    """Refuse a sale that could not sell anything.

    Raises:
        OperationRefused: names what is missing.
    """
    missing = [
        text
        for wrong, text in (
            (not skus, "it has no SKU"),
            (any(sku.initial_units < 1 for sku in skus), "a SKU has no units"),
            (any(sku.price_cents < 1 for sku in skus), "a SKU has no price"),
            (activity.ends_at <= timezone.now(), "its window has ended"),
            (activity.max_open < 1 or activity.max_pending < 1, "max_open or max_pending is 0"),
        )
        if wrong
    ]
    if missing:
        raise OperationRefused(f"activity {activity.pk} is not ready: {', '.join(missing)}")

"""COMPENSATE: a ticket ends a held reservation with a reject; its buyer is told and freed."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

import structlog
from django.core.exceptions import PermissionDenied
from django.db import transaction

from messaging.errors import TransientError
from orders.database import begin
from orders.errors import TicketRefused
from orders.held import is_complete, lock_held, reject_held
from orders.release import release_reservations
from orders.states import RejectReason

if TYPE_CHECKING:
    from django.contrib.auth.models import User

log = structlog.get_logger(__name__)

PERMISSION: Final = "orders.compensate_reservation"


def compensate(*, reservation_id: str, reason: str, user: "User") -> None:
    """Reject a held reservation with COMPENSATED and give its units back.

    Args:
        reservation_id: the held reservation.
        reason: for the log, not empty.
        user: needs `orders.compensate_reservation`.

    Raises:
        PermissionDenied: the user may not.
        TicketRefused: it is not held (any more), or its row does not tell whose it is.

    Cost: one transaction of seven statements, then the release at the gate (the release message
    and the scanner make up for one that does not get there).
    """
    if not user.has_perm(PERMISSION):
        raise PermissionDenied(PERMISSION)
    if not reason.strip():
        raise TicketRefused("a reason is needed: it is the audit record")
    with transaction.atomic(durable=True):
        rejected = reject_compensated(reservation_id, now=begin())
    log.warning(
        "reservation_compensated",
        reservation_id=reservation_id,
        operator=user.get_username(),
        reason=reason,
        rejected=bool(rejected),
    )
    release_now(rejected)


def reject_compensated(reservation_id: str, *, now: datetime) -> list[str]:
    """Reject a held reservation inside the caller's transaction; `release_now` comes after it.

    Raises:
        TicketRefused: it is not held (any more), or its row does not tell whose it is.
    """
    held = lock_held(reservation_id)
    if held is None:
        raise TicketRefused(f"{reservation_id} is not held: nothing to compensate")
    if not is_complete(held):
        raise TicketRefused(f"the row of {reservation_id} does not tell buyer, SKU and units")
    return reject_held(
        [(held, RejectReason.COMPENSATED)], now=now, resolution=RejectReason.COMPENSATED.value
    )


def release_now(reservation_ids: Sequence[str]) -> None:
    """Release at the gate what was rejected; the message and the scanner make up for a failure."""
    try:
        release_reservations(reservation_ids)
    except TransientError:
        log.info("release_waits", reservations=len(reservation_ids))

"""ACTIVITY_VOIDED: the only reason to refuse accepted buyers, and it takes two people.

One asks, another approves; the approval marks the sale in its transaction, then stops it. From
then on the order transaction rejects what is still in flight, and the scanner's job stops the sale
if that is still to do, cancels unpaid orders and refunds paid ones until none is left.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, transaction

from inventory import activities, operations
from orders.cancel_order import cancel_voided
from orders.database import begin, fetch
from orders.errors import OrderStateConflict, VoidRefused
from orders.models import ActivityVoid
from orders.payments.refunds import begin_refund
from orders.payments.states import RefundReason

if TYPE_CHECKING:
    from django.contrib.auth.models import User

log = structlog.get_logger(__name__)

REQUEST_PERMISSION: Final = "orders.request_void"
APPROVE_PERMISSION: Final = "orders.approve_void"

# The condition on ended states is that of orders_order_live_buyer_uniq: only live orders are read.
_LIVE: Final = """
SELECT o.order_id, o.status, v.approved_by, v.reason
  FROM orders_void v JOIN orders_order o ON o.activity_id = v.activity_id
 WHERE v.approved_at IS NOT NULL AND NOT (o.status IN ('CANCELED', 'REFUNDED'))
   AND o.status IN ('CREATED', 'PAYING', 'PAID')
 ORDER BY o.order_id LIMIT %s
"""

# Those whose approver died before the stop, seldom any; read without locks.
_NOT_STOPPED: Final = """
SELECT v.id, v.activity_id, v.reason
  FROM orders_void v JOIN inventory_activity a ON a.id = v.activity_id
 WHERE v.approved_at IS NOT NULL AND a.status IN ('WARM', 'OPEN', 'PAUSED')
 ORDER BY v.id
"""

_ENDS: Final = """
SELECT CASE WHEN status IN ('CREATED', 'PAYING') THEN 'unpaid'
            WHEN status = 'PAID' THEN 'paid' ELSE 'kept' END AS what,
       currency, count(*), sum(quantity)::bigint, sum(amount_cents)::bigint
  FROM orders_order
 WHERE activity_id = %s AND NOT (status IN ('CANCELED', 'REFUNDED')) AND status <> 'REFUNDING'
 GROUP BY 1, 2 ORDER BY 1, 2
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class VoidEffect:
    """Live orders of one kind and currency, and what a void makes of them.

    `what` is unpaid (they are cancelled), paid (refunded), or kept (being fulfilled: left alone).
    """

    what: str
    currency: str
    orders: int
    units: int
    amount_cents: int


def void_effects(activity_id: int) -> list[VoidEffect]:
    """Return what declaring a sale void would end now. Cost: one scan of its live orders."""
    return [
        VoidEffect(what=what, currency=currency, orders=count, units=units, amount_cents=cents)
        for what, currency, count, units, cents in fetch(_ENDS, (activity_id,))
    ]


def request_void(*, activity_id: int, reason: str, user: "User") -> int:
    """Ask for a sale to be declared void; returns the request's number.

    Raises:
        PermissionDenied: the user may not ask.
        ValueError: the reason is empty.
        VoidRefused: no such sale, or there is such a request (or a void) already.
    """
    _require(user, REQUEST_PERMISSION)
    if not reason.strip():
        raise ValueError("a reason is needed")
    if not activities.exists(activity_id):
        raise VoidRefused("there is no such sale")
    try:
        with transaction.atomic(durable=True):
            row = ActivityVoid.objects.create(
                activity_id=activity_id, reason=reason, requested_by=user.get_username()
            )
    except IntegrityError:
        raise VoidRefused("it was asked for already") from None
    log.warning("void_requested", activity_id=activity_id, operator=user.get_username())
    return int(row.pk)


def withdraw_void(*, void_id: int, user: "User") -> None:
    """Take a request back that nobody has approved.

    Raises:
        PermissionDenied: the user may neither ask nor approve.
        VoidRefused: it is approved or withdrawn already.
    """
    if not user.has_perm(APPROVE_PERMISSION):
        _require(user, REQUEST_PERMISSION)
    with transaction.atomic(durable=True):
        changed = ActivityVoid.objects.filter(
            pk=void_id, approved_at__isnull=True, withdrawn_at__isnull=True
        ).update(withdrawn_at=begin(), withdrawn_by=user.get_username())
        if not changed:
            raise VoidRefused("it is approved or withdrawn already")


def approve_void(*, void_id: int, user: "User") -> None:
    """Declare the sale void: the second person's word. It cannot be taken back.

    Raises:
        PermissionDenied: the user may not approve, or is the one who asked.
        VoidRefused: it is approved or withdrawn already.

    Cost: one transaction on the void's and the activity's row, then the stop at the gate.
    """
    _require(user, APPROVE_PERMISSION)
    with transaction.atomic(durable=True):
        now = begin()
        row = ActivityVoid.objects.select_for_update().filter(pk=void_id).first()
        if row is None or row.approved_at or row.withdrawn_at:
            raise VoidRefused("it is approved or withdrawn already")
        if row.requested_by == user.get_username():
            raise PermissionDenied("another person must approve")
        ActivityVoid.objects.filter(pk=void_id, approved_at__isnull=True).update(
            approved_at=now, approved_by=user.get_username()
        )
        activities.mark_voided(activity_id=row.activity_id, now=now)
    log.warning("activity_voided", activity_id=row.activity_id, operator=user.get_username())
    # Were this process to die here: new reservations are rejected one by one, the job stops it.
    _stop(void_id, row.activity_id, row.reason)


def stop_voided() -> int:
    """Stop voided sales that still sell: their approver's process died before it could.

    Returns:
        How many were stopped.

    Cost: one statement on the few voids there are; for each that it finds what a stop costs.
    """
    rows = fetch(_NOT_STOPPED)
    for void_id, activity_id, reason in rows:
        log.warning("void_stopped_late", activity_id=activity_id)
        _stop(void_id, activity_id, reason)
    return len(rows)


def settle_voided(limit: int) -> int:
    """End a batch of live orders of voided sales: unpaid ones cancelled, paid ones refunded.

    Returns:
        How many were ended or are being refunded now.

    Cost: one statement on the index of live orders; one cancel transaction for all that are
    unpaid, one short transaction for each that is paid.
    """
    rows = fetch(_LIVE, (limit,))
    unpaid = [order_id for order_id, status, _, _ in rows if status != "PAID"]
    done = cancel_voided(unpaid) if unpaid else 0
    for order_id, status, approved_by, reason in rows:
        if status != "PAID":
            continue
        try:
            begin_refund(
                order_id=order_id,
                reason=RefundReason.ACTIVITY_VOIDED,
                restock=True,
                requested_by=approved_by,
                note=reason,
            )
        except OrderStateConflict:
            continue  # somebody refunded it meanwhile
        done += 1
    return done


def _stop(void_id: int, activity_id: int, reason: str) -> None:
    """End the sale. One operation a void: the approver and the job may both ask."""
    operations.request_stop(
        activity_id=activity_id,
        operation_id=f"op_void_{void_id}",
        reason=f"void {void_id}: {reason}",
    )


def _require(user: "User", permission: str) -> None:
    if not user.has_perm(permission):
        raise PermissionDenied(permission)

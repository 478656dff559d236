"""Refunds: one for each captured attempt that its order does not keep; how they come to be.

They are DUE until `orders/payments/drive_refunds.py` takes them. The refund of a paid order ends
the order: REFUNDING when it is asked for, REFUNDED (with event, units and release) when the money
is back.
Locks: the order first, then the refund, then stock. Source: docs/payments.md.
"""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import structlog
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import F
from ulid import ULID

from orders import audit
from orders.database import begin
from orders.errors import OrderNotFound, OrdersError, OrderStateConflict
from orders.models import Order, PaymentAttempt, Refund
from orders.payments import items, providers
from orders.payments.drive_refunds import DueRefund, due_refund, record_answer
from orders.payments.port import Outcome, ProviderState, ProviderUnavailable
from orders.payments.states import REFUND_ALLOWED, RefundReason, RefundStatus, sources
from orders.states import OrderStatus

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser, AnonymousUser

log = structlog.get_logger(__name__)

REFUND_PERMISSION: Final = "orders.refund_order"


class RefundRefused(OrdersError):
    """A refund cannot be tried again now; the text says why."""


def owe(
    attempt: PaymentAttempt,
    *,
    reason: RefundReason,
    now: datetime,
    restock: bool = True,
    requested_by: str = "",
    note: str = "",
    wait_s: int = 0,
) -> str:
    """Write the refund of a captured attempt inside the caller's transaction; returns its id."""
    refund_id = f"rfd_{ULID()}"
    Refund.objects.create(
        refund_id=refund_id,
        attempt_id=attempt.attempt_id,
        order_id=attempt.order_id,
        provider=attempt.provider,
        provider_key=refund_id,
        amount_cents=attempt.amount_cents,
        currency=attempt.currency,
        reason=reason,
        restock=restock,
        requested_by=requested_by,
        note=note,
        next_try_at=now + timedelta(seconds=wait_s),
    )
    return refund_id


def take_waiting(order: Order, *, attempt_no: int) -> str | None:
    """Let a late payment that waits for its buyer pay his new order, in the caller's transaction.

    The policy of SECKILL_READMIT_S: the buyer won a unit again through the gate, like everybody,
    and the money that was captured for his timed-out order of the same thing is still unsent.

    Returns:
        The captured attempt, which is the new order's from now on; None when there is none.
    """
    refund = (
        Refund.objects.select_for_update(skip_locked=True, of=("self",))
        .filter(
            status=RefundStatus.DUE,
            submit_count=0,
            reason=RefundReason.LATE_PAYMENT,
            amount_cents=order.amount_cents,
            currency=order.currency,
            order__activity_id=order.activity_id,
            order__sku_id=order.sku_id,
            order__user_id=order.user_id,
        )
        .first()
    )
    if refund is None:
        return None
    attempt_id, late_order = refund.attempt_id, refund.order_id
    refund.delete()
    PaymentAttempt.objects.filter(pk=attempt_id).update(
        order_id=order.order_id, attempt_no=attempt_no
    )
    log.info(
        "late_payer_readmitted",
        order_id=order.order_id,
        late_order_id=late_order,
        attempt_id=attempt_id,
    )
    return attempt_id


def refund_order(
    *,
    order_id: str,
    user: "AbstractBaseUser | AnonymousUser",
    reason: str,
    restock: bool,
) -> str:
    """Give a paid order's money back, for an operator; the scanner drives it from here.

    Args:
        order_id: a PAID order.
        user: needs the permission `orders.refund_order`.
        reason: why, kept in the refund; never empty.
        restock: True puts its units on sale again, False withholds them.

    Returns:
        The refund's id.

    Raises:
        PermissionDenied: the user may not refund.
        ValueError: the reason is empty.
        OrderNotFound: no such order.
        OrderStateConflict: it is not PAID (any more).
    """
    _require(user, REFUND_PERMISSION)
    if not reason.strip():
        raise ValueError("a reason is needed")
    return begin_refund(
        order_id=order_id,
        reason=RefundReason.OPERATOR,
        restock=restock,
        requested_by=user.get_username(),
        note=reason,
    )


def begin_refund(
    *, order_id: str, reason: RefundReason, restock: bool, requested_by: str, note: str
) -> str:
    """PAID becomes REFUNDING, with the refund of the payment that it kept: one transaction."""
    with transaction.atomic(durable=True):
        now = begin()
        order = Order.objects.select_for_update(no_key=True).filter(pk=order_id).first()
        if order is None:
            raise OrderNotFound(order_id)
        changed = Order.objects.filter(pk=order_id, status=OrderStatus.PAID).update(
            status=OrderStatus.REFUNDING, aggregate_version=F("aggregate_version") + 1
        )
        if not changed:
            raise OrderStateConflict(order.status)
        attempt = PaymentAttempt.objects.get(pk=order.payment_id, order_id=order_id)
        refund_id = owe(
            attempt,
            reason=reason,
            now=now,
            restock=restock,
            requested_by=requested_by,
            note=note,
        )
    log.info("refund_requested", order_id=order_id, refund_id=refund_id, operator=requested_by)
    return refund_id


def retry_failed(
    *, refund_id: str, user: "AbstractBaseUser | AnonymousUser", reason: str = ""
) -> None:
    """Try a failed refund again, under a new provider key: the old one is answered for ever.

    The provider is asked about the old key first: given back after all, the refund is settled and
    nothing is sent.

    Args:
        refund_id: a FAILED refund.
        user: needs the permission `orders.refund_order`.
        reason: why it should succeed now, kept in the admin's history of the refund.

    Raises:
        PermissionDenied: the user may not refund.
        OrderStateConflict: it is not FAILED.
        RefundRefused: it succeeded after all under its old key, or whether it did is not known.

    Cost: one call with its deadline, and two short transactions.
    """
    _require(user, REFUND_PERMISSION)
    old = Refund.objects.select_related("attempt").get(pk=refund_id)
    if old.status != RefundStatus.FAILED:
        raise OrderStateConflict(old.status)
    _settle_old_key(due_refund(old))
    with transaction.atomic(durable=True):
        now = begin()
        refund = Refund.objects.select_for_update(no_key=True).get(pk=refund_id)
        changed = Refund.objects.filter(
            pk=refund_id,
            provider_key=old.provider_key,  # the one that was asked about
            status__in=sources(REFUND_ALLOWED, RefundStatus.DUE),
        ).update(
            status=RefundStatus.DUE,
            provider_key=f"{refund_id}-{refund.submit_count}",
            settled_at=None,
            next_try_at=now,
            tries=0,
        )
        if not changed:
            raise OrderStateConflict(refund.status)
        items.resolve(items.REFUND, refund_id, resolution="RETRIED")
        audit.record(Refund, refund_id, user=user, text=f"Tried again: {reason}".strip(" :"))
    log.info("refund_retried", refund_id=refund_id, operator=user.get_username())


def _settle_old_key(refund: DueRefund) -> None:
    """Ask about a failed refund's key before it gets another: both could give the money back.

    Raises:
        RefundRefused: another key must not be sent (now); the text says why.
    """
    try:
        answer = providers.named(refund.provider).query_refund(key=refund.provider_key)
    except ProviderUnavailable as error:
        raise RefundRefused(str(error)) from error
    if answer.outcome is Outcome.OK and answer.state is ProviderState.SUCCEEDED:
        record_answer(refund, answer)
        raise RefundRefused("the provider has given it back after all: nothing was sent")
    if answer.outcome is Outcome.UNKNOWN or answer.state is ProviderState.PENDING:
        raise RefundRefused("the provider does not say yet that it failed: try again later")


def _require(user: "AbstractBaseUser | AnonymousUser", permission: str) -> None:
    if not user.has_perm(permission):  # type: ignore[union-attr]
        raise PermissionDenied(permission)

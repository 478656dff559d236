"""Refunds: one for each captured attempt that its order does not keep, driven until settled.

DUE → SUBMITTED (committed) → the call → SUCCEEDED, FAILED with an item for people, or
SUBMIT_UNKNOWN, which a query settles. The provider's key never changes while a refund is open, so
sending it again can never refund twice. The refund of a paid order ends the order: REFUNDING when
it is asked for, REFUNDED (with event, units and release) when the money is back.
Locks: the order first, then the refund, then stock. Source: docs/payments.md.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec
import structlog
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import F
from ulid import ULID

import faultpoint
from orders import audit, metrics
from orders.contracts import ORDER_REFUNDED
from orders.database import begin, fetch
from orders.end_order import end_orders
from orders.errors import OrderNotFound, OrderStateConflict
from orders.events import ORDER_COLUMNS, order_record
from orders.models import Order, PaymentAttempt, Refund
from orders.payments import items
from orders.payments.port import Answer, Outcome, PaymentProvider, ProviderState
from orders.payments.states import (
    LEASE_S,
    MISMATCH_RETRY_S,
    REFUND_ALLOWED,
    REFUND_OPEN,
    RefundReason,
    RefundStatus,
    sources,
)
from orders.states import OrderStatus

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser, AnonymousUser

log = structlog.get_logger(__name__)

REFUND_PERMISSION: Final = "orders.refund_order"

_REFUNDED: Final = f"""
UPDATE orders_order o
   SET status = 'REFUNDED', aggregate_version = o.aggregate_version + 1
 WHERE o.order_id = %s AND o.status = 'REFUNDING' AND o.payment_id = %s
RETURNING {ORDER_COLUMNS}
"""  # noqa: S608 - constants


@dataclass(frozen=True, kw_only=True, slots=True)
class DueRefund:
    """What a call about a refund needs."""

    refund_id: str
    order_id: str
    provider: str
    provider_key: str
    provider_payment_id: str
    amount_cents: int
    currency: str
    status: RefundStatus


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

    Args:
        refund_id: a FAILED refund.
        user: needs the permission `orders.refund_order`.
        reason: why it should succeed now, kept in the admin's history of the refund.

    Raises:
        PermissionDenied: the user may not refund.
        OrderStateConflict: it is not FAILED.
    """
    _require(user, REFUND_PERMISSION)
    with transaction.atomic(durable=True):
        now = begin()
        refund = Refund.objects.select_for_update(no_key=True).get(pk=refund_id)
        changed = Refund.objects.filter(
            pk=refund_id, status__in=sources(REFUND_ALLOWED, RefundStatus.DUE)
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


def claim_due(limit: int) -> list[DueRefund]:
    """Take open refunds whose time has come; a DUE one is SUBMITTED by this, before any call.

    `status` in the answer is the one before: what was DUE has never been sent under its key.
    """
    with transaction.atomic(durable=True):
        now = begin()
        rows = list(
            Refund.objects.select_for_update(skip_locked=True, no_key=True, of=("self",))
            .select_related("attempt")
            .filter(status__in=list(REFUND_OPEN), next_try_at__lte=now)
            .order_by("next_try_at")[:limit]
        )
        lease = now + timedelta(seconds=LEASE_S)
        Refund.objects.filter(pk__in=[row.pk for row in rows]).update(next_try_at=lease)
        Refund.objects.filter(
            pk__in=[row.pk for row in rows],
            status__in=sources(REFUND_ALLOWED, RefundStatus.SUBMITTED),
        ).update(
            status=RefundStatus.SUBMITTED, submitted_at=now, submit_count=F("submit_count") + 1
        )
    return [
        DueRefund(
            refund_id=row.refund_id,
            order_id=row.order_id,
            provider=row.provider,
            provider_key=row.provider_key,
            provider_payment_id=row.attempt.provider_payment_id or "",
            amount_cents=row.amount_cents,
            currency=row.currency,
            status=RefundStatus(row.status),
        )
        for row in rows
    ]


def drive(refund: DueRefund, provider: PaymentProvider) -> Outcome:
    """Send a refund, or ask what became of it and send the same key again where it is unknown."""
    faultpoint.hit("refund.after_record")
    answer = None
    if refund.status is not RefundStatus.DUE:
        answer = provider.query_refund(key=refund.provider_key)
    if answer is None or answer.outcome is Outcome.NOT_FOUND:
        answer = provider.refund(
            key=refund.provider_key,
            provider_payment_id=refund.provider_payment_id,
            amount_cents=refund.amount_cents,
        )
    faultpoint.hit("refund.after_call")
    record_answer(refund, answer)
    return answer.outcome


def set_aside(refund: DueRefund, error_class: str) -> None:
    """Put a refund off that cannot be driven; it is asked about again, ever more rarely."""
    with transaction.atomic(durable=True):
        _unclear(refund, error_class, begin(), is_unknown=True)


def record_answer(refund: DueRefund, answer: Answer) -> None:
    """Record what the provider said about a refund, in a transaction of its own."""
    with transaction.atomic(durable=True):
        now = begin()
        succeeded = answer.outcome is Outcome.OK and answer.state is ProviderState.SUCCEEDED
        wanted = (refund.amount_cents, refund.currency)
        if succeeded and (answer.amount_cents, answer.currency) != wanted:
            _mismatch(refund, answer, now)
        elif succeeded:
            succeed(
                provider=refund.provider,
                provider_key=refund.provider_key,
                provider_refund_id=answer.provider_id,
                now=now,
            )
        elif answer.outcome is Outcome.DEFINITE or answer.state is ProviderState.FAILED:
            fail(
                provider=refund.provider,
                provider_key=refund.provider_key,
                error_class=answer.error_class,
                now=now,
            )
        else:
            _unclear(refund, answer.error_class, now, is_unknown=answer.outcome is not Outcome.OK)
        faultpoint.hit("refund.before_commit")
    metrics.REFUND_ANSWER.labels(outcome=answer.outcome.value).inc()


def succeed(*, provider: str, provider_key: str, provider_refund_id: str, now: datetime) -> bool:
    """Settle a refund as given back, inside the caller's transaction; False changes nothing.

    Raises:
        Refund.DoesNotExist: no refund has this key.

    Cost: three statements, and those of the order's end when its kept payment went back.
    """
    refund = Refund.objects.get(provider=provider, provider_key=provider_key)
    Order.objects.select_for_update(no_key=True).get(pk=refund.order_id)
    changed = Refund.objects.filter(
        pk=refund.pk, status__in=sources(REFUND_ALLOWED, RefundStatus.SUCCEEDED)
    ).update(
        status=RefundStatus.SUCCEEDED,
        provider_refund_id=provider_refund_id,
        settled_at=now,
        next_try_at=None,
        error_class="",
    )
    if not changed:
        return False
    items.resolve(items.REFUND, refund.refund_id, resolution="REFUNDED")
    ended = fetch(_REFUNDED, (refund.order_id, refund.attempt_id))
    if ended:
        end_orders(
            [order_record(row) for row in ended],
            event_type=ORDER_REFUNDED,
            restock=refund.restock,
            now=now,
        )
    return True


def fail(*, provider: str, provider_key: str, error_class: str, now: datetime) -> bool:
    """Settle a refund as refused and open its item, inside the caller's transaction.

    Raises:
        Refund.DoesNotExist: no refund has this key.
    """
    refund = Refund.objects.get(provider=provider, provider_key=provider_key)
    changed = Refund.objects.filter(
        pk=refund.pk, status__in=sources(REFUND_ALLOWED, RefundStatus.FAILED)
    ).update(status=RefundStatus.FAILED, settled_at=now, next_try_at=None, error_class=error_class)
    if not changed:
        return False
    log.error("refund_failed", order_id=refund.order_id, refund_id=refund.refund_id)
    items.open_item(
        items.REFUND,
        refund.refund_id,
        reason="REFUND_FAILED",
        keys=(refund.order_id, refund.attempt_id),
        body=msgspec.json.encode(
            {
                "refund_id": refund.refund_id,
                "order_id": refund.order_id,
                "attempt_id": refund.attempt_id,
                "amount_cents": refund.amount_cents,
                "currency": refund.currency,
                "error_class": error_class,
            }
        ),
    )
    return True


def _mismatch(refund: DueRefund, answer: Answer, now: datetime) -> None:
    """The provider gave back something else than we asked for: not settled, a person looks."""
    log.error("refund_amount_mismatch", order_id=refund.order_id, refund_id=refund.refund_id)
    _unclear(refund, "AMOUNT_MISMATCH", now, is_unknown=True)
    Refund.objects.filter(pk=refund.refund_id, status__in=list(REFUND_OPEN)).update(
        next_try_at=now + timedelta(seconds=MISMATCH_RETRY_S)
    )
    items.open_item(
        items.REFUND,
        refund.refund_id,
        reason="AMOUNT_MISMATCH",
        keys=(refund.order_id,),
        body=msgspec.json.encode(
            {
                "refund_id": refund.refund_id,
                "order_id": refund.order_id,
                "asked": [refund.amount_cents, refund.currency],
                "given_back": [answer.amount_cents, answer.currency],
                "provider_refund_id": answer.provider_id,
            }
        ),
    )


def _unclear(refund: DueRefund, error_class: str, now: datetime, *, is_unknown: bool) -> None:
    """Pending at the provider, or no clear answer: asked again later."""
    row = Refund.objects.filter(pk=refund.refund_id, status__in=list(REFUND_OPEN))
    tries = row.values_list("tries", flat=True).first()
    if tries is None:
        return
    wait = timedelta(seconds=min(60, 2 ** min(tries, 6)))
    row.update(next_try_at=now + wait, tries=tries + 1, error_class=error_class)
    if is_unknown:
        Refund.objects.filter(
            pk=refund.refund_id,
            status__in=sources(REFUND_ALLOWED, RefundStatus.SUBMIT_UNKNOWN),
        ).update(status=RefundStatus.SUBMIT_UNKNOWN)


def _require(user: "AbstractBaseUser | AnonymousUser", permission: str) -> None:
    if not user.has_perm(permission):  # type: ignore[union-attr]
        raise PermissionDenied(permission)

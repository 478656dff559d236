"""Drives refunds until they are settled: DUE → SUBMITTED (committed) → the call → its answer.

SUCCEEDED, FAILED with an item for people, or SUBMIT_UNKNOWN, which a query settles. The provider's
key never changes while a refund is open, so sending it again can never refund twice.
Locks: the order first, then the refund, then stock. Source: docs/payments.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import structlog
from django.db import transaction
from django.db.models import F

import faultpoint
from orders import metrics
from orders.contracts import ORDER_REFUNDED
from orders.database import begin, fetch
from orders.end_order import end_orders
from orders.events import ORDER_COLUMNS, order_record
from orders.models import Order, Refund
from orders.payments import items
from orders.payments.port import Answer, Outcome, PaymentProvider, ProviderState
from orders.payments.states import (
    ERROR_CLASS_MAX,
    ITEM_AFTER_TRIES,
    LEASE_S,
    MISMATCH,
    MISMATCH_RETRY_S,
    REFUND_ALLOWED,
    REFUND_OPEN,
    RefundStatus,
    back_off,
    sources,
)

log = structlog.get_logger(__name__)

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
    return [due_refund(row) for row in rows]


def due_refund(row: Refund) -> DueRefund:
    """Return what a call about a refund needs; its attempt is read with it."""
    return DueRefund(
        refund_id=row.refund_id,
        order_id=row.order_id,
        provider=row.provider,
        provider_key=row.provider_key,
        provider_payment_id=row.attempt.provider_payment_id or "",
        amount_cents=row.amount_cents,
        currency=row.currency,
        status=RefundStatus(row.status),
    )


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
    """Put a refund off that cannot be driven, ever longer; still so after a minute: an item."""
    with transaction.atomic(durable=True):
        _unclear(refund, error_class[:ERROR_CLASS_MAX], begin(), is_unknown=True)
        if Refund.objects.filter(
            pk=refund.refund_id, status__in=list(REFUND_OPEN), tries__gt=ITEM_AFTER_TRIES
        ).exists():
            _open_item(refund, "CANNOT_BE_DRIVEN", provider=refund.provider, error=error_class)
    metrics.REFUND_ANSWER.labels(outcome="SET_ASIDE").inc()


def record_answer(refund: DueRefund, answer: Answer) -> None:
    """Record what the provider said about a refund, in a transaction of its own."""
    with transaction.atomic(durable=True):
        now = begin()
        succeeded = answer.outcome is Outcome.OK and answer.state is ProviderState.SUCCEEDED
        wanted = (refund.amount_cents, refund.currency)
        if not Refund.objects.filter(
            provider=refund.provider, provider_key=refund.provider_key
        ).exists():
            _old_key(refund, answer)
        elif succeeded and (answer.amount_cents, answer.currency) != wanted:
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


def succeed(
    *,
    provider: str,
    provider_key: str,
    provider_refund_id: str | None,
    now: datetime,
    outside_reference: str = "",
) -> bool:
    """Settle a refund as given back, inside the caller's transaction; False changes nothing.

    Without an id of the provider's it has the reference of how it was given back elsewhere.

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
        outside_reference=outside_reference,
        settled_at=now,
        next_try_at=None,
        error_class="",
    )
    if not changed:
        return False
    resolution = "SETTLED_OUTSIDE" if outside_reference else "REFUNDED"
    items.resolve(items.REFUND, refund.refund_id, resolution=resolution)
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
    _open_item(
        refund,
        "REFUND_FAILED",
        keys=(refund.attempt_id,),
        attempt_id=refund.attempt_id,
        amount_cents=refund.amount_cents,
        currency=refund.currency,
        error_class=error_class,
    )
    return True


def _old_key(refund: DueRefund, answer: Answer) -> None:
    """An answer under a key that an operator's retry has replaced while the call was on its way."""
    if answer.outcome is Outcome.DEFINITE or answer.state is ProviderState.FAILED:
        return
    log.error("refund_old_key_answered", order_id=refund.order_id, refund_id=refund.refund_id)
    _open_item(
        refund,
        "OLD_KEY_ANSWERED",
        keys=(refund.refund_id,),
        item_id=f"{refund.provider_key}:old",  # the refund's own is closed when it succeeds
        old_key=refund.provider_key,
        outcome=answer.outcome.value,
        state=answer.state.value if answer.state else "",
        provider_refund_id=answer.provider_id,
    )


def _mismatch(refund: DueRefund, answer: Answer, now: datetime) -> None:
    """The provider gave back something else than we asked for: not settled, a person looks."""
    if Refund.objects.filter(pk=refund.refund_id).exclude(outside_reference="").exists():
        return  # a person has looked
    log.error("refund_amount_mismatch", order_id=refund.order_id, refund_id=refund.refund_id)
    _unclear(refund, MISMATCH, now, is_unknown=True)
    Refund.objects.filter(pk=refund.refund_id, status__in=list(REFUND_OPEN)).update(
        next_try_at=now + timedelta(seconds=MISMATCH_RETRY_S)
    )
    _open_item(
        refund,
        MISMATCH,
        asked=[refund.amount_cents, refund.currency],
        given_back=[answer.amount_cents, answer.currency],
        provider_refund_id=answer.provider_id,
    )


def _open_item(
    refund: DueRefund | Refund,
    reason: str,
    *,
    item_id: str = "",
    keys: Sequence[str] = (),
    **facts: object,
) -> None:
    items.open_with_facts(
        items.REFUND,
        item_id or refund.refund_id,
        reason=reason,
        order_id=refund.order_id,
        keys=keys,
        facts={"refund_id": refund.refund_id, **facts},
    )


def _unclear(refund: DueRefund, error_class: str, now: datetime, *, is_unknown: bool) -> None:
    """Pending at the provider, or no clear answer: asked again later."""
    row = Refund.objects.filter(pk=refund.refund_id, status__in=list(REFUND_OPEN))
    tries = row.values_list("tries", flat=True).first()
    if tries is None:
        return
    row.update(next_try_at=now + back_off(tries), tries=tries + 1, error_class=error_class)
    if is_unknown:
        Refund.objects.filter(
            pk=refund.refund_id,
            status__in=sources(REFUND_ALLOWED, RefundStatus.SUBMIT_UNKNOWN),
        ).update(status=RefundStatus.SUBMIT_UNKNOWN)

"""Attempts to pay: recorded, committed, then sent; the answer is recorded in a new transaction.

An attempt without a clear answer is SUBMIT_UNKNOWN and settled by query (orders/scan/payments.py).
NOT_FOUND is no failure before the provider's stated window has passed since the last send; until
then nothing but the same key is sent. Attempts are settled whatever the order's state: captured
money that the order does not keep becomes a refund in the same transaction.
Locks: the order first, then its attempt or refund, then stock. Source: docs/payments.md.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

import structlog
from django.conf import settings
from django.db import transaction
from ulid import ULID

import faultpoint
from orders import metrics
from orders.database import begin
from orders.errors import OrderNotFound, OrderStateConflict
from orders.models import Order, PaymentAttempt
from orders.pay_order import mark_paid
from orders.payments import items, providers, refunds
from orders.payments.port import Answer, Outcome, PaymentProvider, ProviderState
from orders.payments.states import (
    ATTEMPT_ALLOWED,
    ATTEMPT_OPEN,
    ERROR_CLASS_MAX,
    ITEM_AFTER_TRIES,
    LEASE_S,
    MISMATCH,
    MISMATCH_RETRY_S,
    AttemptStatus,
    RefundReason,
    back_off,
    sources,
)
from orders.states import UNPAID, CancelReason, OrderStatus

log = structlog.get_logger(__name__)


class Settlement(StrEnum):
    """What a capture led to."""

    KEPT = "KEPT"  # it paid the order
    REFUND_DUE = "REFUND_DUE"  # the order does not keep it
    ALREADY = "ALREADY"  # known before: nothing changed
    MISMATCH = "MISMATCH"  # another amount or currency than asked for: a person must look


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """What never changes of an attempt, and when it was last sent."""

    attempt_id: str
    order_id: str
    provider: str
    amount_cents: int
    currency: str
    submitted_at: datetime


def start_payment(*, order_id: str, user_id: str) -> None:
    """Pay a buyer's order: record an attempt, then ask the provider, then record the answer.

    With an attempt still open nothing is sent: it is settled by query. Read the result with
    `orders.payments.selectors.payment_state`.

    Raises:
        OrderNotFound: no such order, or it is another's.
        OrderStateConflict: it is not unpaid any more.
        ProviderUnavailable: no provider is configured.

    Cost: two transactions on the order's row and one call with its deadline in between.
    """
    provider = providers.current()
    attempt = _record(order_id=order_id, user_id=user_id, provider=provider)
    if attempt is None:
        return
    faultpoint.hit("payment.after_record")
    submit(attempt, provider)


def _record(*, order_id: str, user_id: str, provider: PaymentProvider) -> Attempt | None:
    """Write the attempt; None when one is open already, or waiting money has paid the order."""
    with transaction.atomic(durable=True):
        now = begin()
        order = Order.objects.select_for_update(no_key=True).filter(pk=order_id).first()
        if order is None or order.user_id != user_id:
            raise OrderNotFound(order_id)
        if order.status not in UNPAID:
            raise OrderStateConflict(order.status)
        attempts = list(PaymentAttempt.objects.filter(order_id=order_id).values_list("status"))
        if any(status in ATTEMPT_OPEN for (status,) in attempts):
            return None
        if settings.SECKILL_READMIT_S:
            waiting = refunds.take_waiting(order, attempt_no=len(attempts) + 1)
            if waiting is not None:
                mark_paid(order_id=order_id, payment_id=waiting, now=now)
                return None
        row = PaymentAttempt.objects.create(
            attempt_id=f"pay_{ULID()}",
            order_id=order_id,
            attempt_no=len(attempts) + 1,
            provider=provider.name,
            amount_cents=order.amount_cents,
            currency=order.currency,
            submitted_at=now,
            next_try_at=now + timedelta(seconds=LEASE_S),
        )
        if order.status == OrderStatus.CREATED:
            Order.objects.filter(pk=order_id, status=OrderStatus.CREATED).update(
                status=OrderStatus.PAYING, aggregate_version=order.aggregate_version + 1
            )
    return _attempt(row)


def submit(attempt: Attempt, provider: PaymentProvider) -> Outcome:
    """Send an attempt that is recorded as sent, record the answer and return what it was."""
    answer = provider.create_payment(
        key=attempt.attempt_id,
        reference=attempt.order_id,
        amount_cents=attempt.amount_cents,
        currency=attempt.currency,
    )
    faultpoint.hit("payment.after_call")
    record_answer(attempt, answer)
    return answer.outcome


def record_answer(attempt: Attempt, answer: Answer) -> None:
    """Record what the provider said about an attempt, in a transaction of its own."""
    with transaction.atomic(durable=True):
        now = begin()
        if answer.outcome is Outcome.OK and answer.state is ProviderState.SUCCEEDED:
            settlement = capture(
                attempt_id=attempt.attempt_id,
                provider_payment_id=answer.provider_id,
                amount_cents=answer.amount_cents,
                currency=answer.currency,
                now=now,
            )
            if settlement is Settlement.MISMATCH:
                _mismatch(attempt, answer, now)
        elif answer.outcome is Outcome.OK and answer.state is ProviderState.PENDING:
            _submitted(attempt.attempt_id, answer.provider_id, now)
        elif answer.outcome is Outcome.DEFINITE or answer.state is ProviderState.FAILED:
            fail(attempt_id=attempt.attempt_id, error_class=answer.error_class, now=now)
        else:
            _unknown(attempt.attempt_id, answer.error_class, now)
        faultpoint.hit("payment.before_commit")
    metrics.PAYMENT_ANSWER.labels(outcome=answer.outcome.value).inc()


def capture(
    *, attempt_id: str, provider_payment_id: str, amount_cents: int, currency: str, now: datetime
) -> Settlement:
    """Settle a captured attempt inside the caller's transaction: pay the order, or owe a refund.

    Raises:
        PaymentAttempt.DoesNotExist: there is no such attempt.

    Cost: at most six statements; locks the order, then the attempt.
    """
    attempt = PaymentAttempt.objects.get(pk=attempt_id)
    order = Order.objects.select_for_update(no_key=True).get(pk=attempt.order_id)
    if (amount_cents, currency) != (attempt.amount_cents, attempt.currency):
        return Settlement.MISMATCH
    changed = PaymentAttempt.objects.filter(
        pk=attempt_id, status__in=sources(ATTEMPT_ALLOWED, AttemptStatus.SUCCEEDED)
    ).update(
        status=AttemptStatus.SUCCEEDED,
        provider_payment_id=provider_payment_id,
        settled_at=now,
        next_try_at=None,
        error_class="",
    )
    if not changed:
        return Settlement.ALREADY
    items.resolve(items.PAYMENT, attempt_id, resolution="CAPTURED")
    if mark_paid(order_id=order.order_id, payment_id=attempt_id, now=now) is not None:
        return Settlement.KEPT
    canceled = order.status == OrderStatus.CANCELED
    reason = RefundReason.LATE_PAYMENT if canceled else RefundReason.SECOND_CAPTURE
    timed_out = order.cancel_reason == CancelReason.PAYMENT_TIMEOUT
    wait_s = settings.SECKILL_READMIT_S if timed_out else 0
    refunds.owe(attempt, reason=reason, now=now, wait_s=wait_s)
    log.info("refund_due", order_id=order.order_id, attempt_id=attempt_id, reason=reason.value)
    return Settlement.REFUND_DUE


def fail(*, attempt_id: str, error_class: str, now: datetime) -> bool:
    """Settle an attempt as failed inside the caller's transaction; False when it is settled."""
    guard = sources(ATTEMPT_ALLOWED, AttemptStatus.FAILED)
    return bool(
        PaymentAttempt.objects.filter(pk=attempt_id, status__in=guard).update(
            status=AttemptStatus.FAILED,
            settled_at=now,
            next_try_at=None,
            error_class=error_class,
        )
    )


def _submitted(attempt_id: str, provider_payment_id: str, now: datetime) -> None:
    """The provider has it and decides later: its webhook or a query will tell."""
    guard = [*sources(ATTEMPT_ALLOWED, AttemptStatus.SUBMITTED), AttemptStatus.SUBMITTED.value]
    row = PaymentAttempt.objects.filter(pk=attempt_id, status__in=guard)
    tries = row.values_list("tries", flat=True).first() or 0
    row.update(
        status=AttemptStatus.SUBMITTED,
        provider_payment_id=provider_payment_id,
        next_try_at=now + back_off(tries),
        tries=tries + 1,
        error_class="",
    )


def _unknown(attempt_id: str, error_class: str, now: datetime) -> None:
    """No clear answer: a query must settle it. What the provider is known to have stays so."""
    open_row = PaymentAttempt.objects.filter(pk=attempt_id, status__in=list(ATTEMPT_OPEN))
    tries = open_row.values_list("tries", flat=True).first()
    if tries is None:
        return
    open_row.update(next_try_at=now + back_off(tries), tries=tries + 1, error_class=error_class)
    PaymentAttempt.objects.filter(
        pk=attempt_id, status__in=sources(ATTEMPT_ALLOWED, AttemptStatus.SUBMIT_UNKNOWN)
    ).update(status=AttemptStatus.SUBMIT_UNKNOWN)


def _mismatch(attempt: Attempt, answer: Answer, now: datetime) -> None:
    """The provider captured something else than we asked for: nothing is booked, a person looks."""
    if PaymentAttempt.objects.filter(pk=attempt.attempt_id).exclude(outside_reference="").exists():
        return  # a person has looked
    log.error("payment_amount_mismatch", order_id=attempt.order_id, attempt_id=attempt.attempt_id)
    _unknown(attempt.attempt_id, MISMATCH, now)
    PaymentAttempt.objects.filter(pk=attempt.attempt_id, status__in=list(ATTEMPT_OPEN)).update(
        next_try_at=now + timedelta(seconds=MISMATCH_RETRY_S)
    )
    _open_item(
        attempt,
        MISMATCH,
        asked=[attempt.amount_cents, attempt.currency],
        captured=[answer.amount_cents, answer.currency],
        provider_payment_id=answer.provider_id,
    )


def _open_item(attempt: Attempt, reason: str, **facts: object) -> None:
    items.open_with_facts(
        items.PAYMENT,
        attempt.attempt_id,
        reason=reason,
        order_id=attempt.order_id,
        facts={"attempt_id": attempt.attempt_id, **facts},
    )


def may_resend(attempt: Attempt, *, window_s: int) -> bool:
    """Decide about an attempt that the provider does not know, and record what is decided.

    Args:
        attempt: an attempt that was asked for in vain.
        window_s: how long after the last send that says nothing.

    Returns:
        True: it is recorded as sent once more, send the same key now. False: it is FAILED (the
        window has passed), or it waits on: its order is not payable any more, sending again could
        only charge for nothing.
    """
    with transaction.atomic(durable=True):
        now = begin()
        order = Order.objects.select_for_update(no_key=True).get(pk=attempt.order_id)
        row = PaymentAttempt.objects.filter(
            pk=attempt.attempt_id, status__in=list(ATTEMPT_OPEN)
        ).first()
        if row is None:
            return False
        if now - row.submitted_at >= timedelta(seconds=window_s):
            fail(attempt_id=row.attempt_id, error_class="NOT_FOUND", now=now)
            return False
        if order.status not in UNPAID or row.status == AttemptStatus.SUBMITTED:
            _unknown(row.attempt_id, "NOT_FOUND", now)
            return False
        PaymentAttempt.objects.filter(pk=row.attempt_id).update(
            submitted_at=now,
            submit_count=row.submit_count + 1,
            next_try_at=now + timedelta(seconds=LEASE_S),
        )
        return True


def claim_due(limit: int) -> list[Attempt]:
    """Take open attempts whose time has come; nobody else gets them for the lease."""
    with transaction.atomic(durable=True):
        now = begin()
        rows = list(
            PaymentAttempt.objects.select_for_update(skip_locked=True, no_key=True)
            .filter(status__in=list(ATTEMPT_OPEN), next_try_at__lte=now)
            .order_by("next_try_at")[:limit]
        )
        PaymentAttempt.objects.filter(pk__in=[row.pk for row in rows]).update(
            next_try_at=now + timedelta(seconds=LEASE_S)
        )
    return [_attempt(row) for row in rows]


def drive(attempt: Attempt, provider: PaymentProvider) -> Outcome:
    """Ask what became of an attempt; send the same key again where that is right.

    Returns:
        What the last call led to.
    """
    answer = provider.query_payment(key=attempt.attempt_id)
    if answer.outcome is not Outcome.NOT_FOUND:
        record_answer(attempt, answer)
    elif may_resend(attempt, window_s=provider.not_found_window_s):
        faultpoint.hit("payment.after_record")
        return submit(attempt, provider)
    return answer.outcome


def set_aside(attempt: Attempt, error_class: str) -> None:
    """Put an attempt off that cannot be driven, ever longer; still so after a minute: an item."""
    with transaction.atomic(durable=True):
        _unknown(attempt.attempt_id, error_class[:ERROR_CLASS_MAX], begin())
        if PaymentAttempt.objects.filter(
            pk=attempt.attempt_id, status__in=list(ATTEMPT_OPEN), tries__gt=ITEM_AFTER_TRIES
        ).exists():
            _open_item(attempt, "CANNOT_BE_DRIVEN", provider=attempt.provider, error=error_class)
    metrics.PAYMENT_ANSWER.labels(outcome="SET_ASIDE").inc()


def _attempt(row: PaymentAttempt) -> Attempt:
    return Attempt(
        attempt_id=row.attempt_id,
        order_id=row.order_id,
        provider=row.provider,
        amount_cents=row.amount_cents,
        currency=row.currency,
        submitted_at=row.submitted_at,
    )

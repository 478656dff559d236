"""Money that was settled outside of the provider's interface: an operator says so, with a proof.

A bank transfer for a refund that the provider refuses for good, or another amount than asked for
that was given back in the provider's own back office. Without it such a row would stay open and its
sale could never be settled. Nothing is sent anywhere; the books are not compared for such a row.
Locks: the order first, then the attempt or refund, then stock. Source: docs/payments.md.
"""

from typing import TYPE_CHECKING, Final

import structlog
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Q

from orders import audit
from orders.database import begin
from orders.errors import OrdersError
from orders.models import Order, PaymentAttempt, Refund
from orders.payments import drive_refunds, items, providers
from orders.payments.drive_refunds import due_refund
from orders.payments.port import Outcome, ProviderState, ProviderUnavailable
from orders.payments.refunds import REFUND_PERMISSION
from orders.payments.states import (
    ATTEMPT_OPEN,
    ITEM_AFTER_TRIES,
    MISMATCH,
    REFUND_OPEN,
    AttemptStatus,
    RefundStatus,
)

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser, AnonymousUser

log = structlog.get_logger(__name__)

REFERENCE_MAX: Final = 64
_A_PERSON_LOOKS: Final = Q(error_class=MISMATCH) | Q(tries__gt=ITEM_AFTER_TRIES)
# What may be settled so: what no loop will settle.
STUCK_ATTEMPT: Final = Q(status__in=list(ATTEMPT_OPEN)) & Q(error_class=MISMATCH)
STUCK_REFUND: Final = Q(status=RefundStatus.FAILED) | (
    Q(status__in=sorted(REFUND_OPEN - {RefundStatus.DUE})) & _A_PERSON_LOOKS
)


class NotSettledOutside(OrdersError):
    """Nothing was changed; the text says why."""


def settle_refund_outside(
    *, refund_id: str, user: "AbstractBaseUser | AnonymousUser", reference: str, reason: str
) -> None:
    """Record a stuck refund as given back by another way; its order ends as with any refund.

    The provider is asked first, if it answers: given back after all, that is recorded instead.

    Args:
        refund_id: FAILED, or open with an item for people.
        user: needs the permission `orders.refund_order`.
        reference: what proves it, such as the bank's number of the transfer; at most 64 characters.
        reason: kept in the admin's history of the refund.

    Raises:
        PermissionDenied: the user may not refund.
        Refund.DoesNotExist: no such refund.
        NotSettledOutside: no reference or reason, the loops still work on it, or the provider has
            given it back, or may still.

    Cost: one call with its deadline and one short transaction.
    """
    _check(user, reference, reason)
    known = Refund.objects.get(pk=refund_id)
    _ask_provider(known)
    with transaction.atomic(durable=True):
        now = begin()
        Order.objects.select_for_update(no_key=True).get(pk=known.order_id)
        stuck = Refund.objects.select_for_update(no_key=True).filter(STUCK_REFUND)
        refund = stuck.filter(pk=refund_id, provider_key=known.provider_key).first()
        if refund is None or not drive_refunds.succeed(
            provider=refund.provider,
            provider_key=refund.provider_key,
            provider_refund_id=None,
            outside_reference=reference,
            now=now,
        ):
            raise NotSettledOutside("it is settled, or the scanner still works on it: look again")
        audit.record(Refund, refund_id, user=user, text=_text(reference, reason))
    log.warning("refund_settled_outside", refund_id=refund_id, operator=user.get_username())


def settle_attempt_outside(
    *, attempt_id: str, user: "AbstractBaseUser | AnonymousUser", reference: str, reason: str
) -> None:
    """End an attempt that captured another amount than asked for, whose money went back outside.

    It is FAILED then: it pays nothing, and an order that is still unpaid may be paid again.

    Raises:
        PermissionDenied: the user may not refund.
        PaymentAttempt.DoesNotExist: no such attempt.
        NotSettledOutside: no reference or reason, or it is not such an attempt (any more).

    Cost: one short transaction.
    """
    _check(user, reference, reason)
    order_id = PaymentAttempt.objects.values_list("order_id", flat=True).get(pk=attempt_id)
    with transaction.atomic(durable=True):
        now = begin()
        Order.objects.select_for_update(no_key=True).get(pk=order_id)
        changed = PaymentAttempt.objects.filter(STUCK_ATTEMPT, pk=attempt_id).update(
            status=AttemptStatus.FAILED,
            settled_at=now,
            next_try_at=None,
            outside_reference=reference,
        )
        if not changed:
            raise NotSettledOutside("it did not capture another amount, or is settled: look again")
        items.resolve(items.PAYMENT, attempt_id, resolution="SETTLED_OUTSIDE")
        audit.record(PaymentAttempt, attempt_id, user=user, text=_text(reference, reason))
    log.warning("payment_settled_outside", attempt_id=attempt_id, operator=user.get_username())


def _check(user: "AbstractBaseUser | AnonymousUser", reference: str, reason: str) -> None:
    if not user.has_perm(REFUND_PERMISSION):  # type: ignore[union-attr]
        raise PermissionDenied(REFUND_PERMISSION)
    if not reference.strip() or not reason.strip() or len(reference) > REFERENCE_MAX:
        raise NotSettledOutside(
            f"a reference of at most {REFERENCE_MAX} characters and a reason are needed"
        )


def _ask_provider(refund: Refund) -> None:
    """Refuse when the provider gave it back, or may still; its silence is no obstacle."""
    try:
        answer = providers.named(refund.provider).query_refund(key=refund.provider_key)
    except ProviderUnavailable:
        return
    if answer.outcome is not Outcome.OK:
        return
    if answer.state is ProviderState.PENDING:
        raise NotSettledOutside("the provider is still working on it: wait for its answer")
    asked = (refund.amount_cents, refund.currency)
    if answer.state is ProviderState.SUCCEEDED and (answer.amount_cents, answer.currency) == asked:
        drive_refunds.record_answer(due_refund(refund), answer)
        raise NotSettledOutside("the provider has given it back after all: that is recorded")


def _text(reference: str, reason: str) -> str:
    return f"Settled outside ({reference}): {reason}"

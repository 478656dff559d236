"""What operators may do to an order, its payments and its refund, each on a page of its own."""

from collections.abc import Callable
from functools import partial
from typing import Final

from django.contrib.auth.models import AnonymousUser, User
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from orders.amounts import money
from orders.cancel_order import CANCEL_PERMISSION, cancel_by_operator
from orders.models import Order, PaymentAttempt, Refund
from orders.operators.confirm import (
    Act,
    ReasonForm,
    ReferenceForm,
    UnitsForm,
    confirm,
    require,
)
from orders.payments.outside import (
    STUCK_ATTEMPT,
    STUCK_REFUND,
    settle_attempt_outside,
    settle_refund_outside,
)
from orders.payments.refunds import REFUND_PERMISSION, refund_order, retry_failed
from orders.payments.states import RefundStatus
from orders.states import UNPAID, OrderStatus

VIEW_ORDER: Final = "orders.view_order"
VIEW_ATTEMPT: Final = "orders.view_paymentattempt"
VIEW_REFUND: Final = "orders.view_refund"


def acts_on_order(order: Order, user: User | AnonymousUser) -> list[tuple[str, str]]:
    """Return name and address of what a user may do to an order in its present state."""
    offered = [
        ("Cancel", "orders_order_cancel", CANCEL_PERMISSION, order.status in UNPAID),
        ("Refund", "orders_order_refund", REFUND_PERMISSION, order.status == OrderStatus.PAID),
    ]
    return [
        (name, reverse(f"admin:{view}", args=[order.pk]))
        for name, view, permission, fits in offered
        if fits and user.has_perms((VIEW_ORDER, permission))
    ]


def acts_on_refund(refund: Refund, user: User | AnonymousUser) -> list[tuple[str, str]]:
    """Return name and address of what a user may do to a refund in its present state."""
    if not user.has_perms((VIEW_REFUND, REFUND_PERMISSION)):
        return []
    offered = [
        ("Try again", "orders_refund_retry", Q(status=RefundStatus.FAILED)),
        ("Settled outside", "orders_refund_outside", STUCK_REFUND),
    ]
    return _fitting(refund, offered)


def acts_on_attempt(attempt: PaymentAttempt, user: User | AnonymousUser) -> list[tuple[str, str]]:
    """Return name and address of what a user may do to an attempt to pay in its present state."""
    if not user.has_perms((VIEW_ATTEMPT, REFUND_PERMISSION)):
        return []
    return _fitting(attempt, [("Settled outside", "orders_attempt_outside", STUCK_ATTEMPT)])


def _fitting(
    row: Refund | PaymentAttempt, offered: list[tuple[str, str, Q]]
) -> list[tuple[str, str]]:
    return [
        (name, reverse(f"admin:{view}", args=[row.pk]))
        for name, view, condition in offered
        if type(row).objects.filter(condition, pk=row.pk).exists()  # the service's own condition
    ]


@require_http_methods(["GET", "POST"])
def cancel(request: HttpRequest, order_id: str) -> HttpResponse:
    """Cancel an unpaid order.

    Raises:
        PermissionDenied: the user may not see or cancel orders.
        Http404: no such order.
    """
    require(request, VIEW_ORDER, CANCEL_PERMISSION)
    order = get_object_or_404(Order, pk=order_id)

    def do(*, reason: str, restock: bool) -> tuple[str, str]:
        cancel_by_operator(order_id=order_id, user=request.user, reason=reason, restock=restock)
        return f"Order {order_id} is cancelled.", _page(order_id)

    act = Act(
        title="Cancel an order",
        button="Cancel the order",
        opts=Order._meta,
        back=_page(order_id),
        facts=_facts(order),
        effects=(
            "The order becomes CANCELED (OPERATOR) for good; its buyer sees that at once.",
            f"{_units_leave(order)} the order, to where you say; the buyer may buy again either"
            " way.",
            "No money was booked. Should a payment on its way still be captured, it is refunded by"
            " itself.",
        ),
        do=do,
        form=UnitsForm,
    )
    return confirm(request, act)


@require_http_methods(["GET", "POST"])
def refund(request: HttpRequest, order_id: str) -> HttpResponse:
    """Give a paid order's money back.

    Raises:
        PermissionDenied: the user may not see or refund orders.
        Http404: no such order.
    """
    require(request, VIEW_ORDER, REFUND_PERMISSION)
    order = get_object_or_404(Order, pk=order_id)

    def do(*, reason: str, restock: bool) -> tuple[str, str]:
        refund_id = refund_order(
            order_id=order_id, user=request.user, reason=reason, restock=restock
        )
        return f"Refund {refund_id} of {order_id} is due.", _page(order_id)

    act = Act(
        title="Refund an order",
        button="Refund the order",
        opts=Order._meta,
        back=_page(order_id),
        facts=_facts(order),
        effects=(
            f"{money(order.amount_cents, order.currency)} go back to the buyer, the whole amount.",
            "The order is REFUNDING now and REFUNDED when the provider has given the money back;"
            " a provider that refuses leaves an open item for people.",
            f"{_units_leave(order)} the order then, to where you say; the buyer may buy again"
            " either way.",
        ),
        do=do,
        form=UnitsForm,
    )
    return confirm(request, act)


@require_http_methods(["GET", "POST"])
def retry(request: HttpRequest, refund_id: str) -> HttpResponse:
    """Try a failed refund again.

    Raises:
        PermissionDenied: the user may not see or make refunds.
        Http404: no such refund.
    """
    require(request, VIEW_REFUND, REFUND_PERMISSION)
    row = get_object_or_404(Refund, pk=refund_id)
    here = reverse("admin:orders_refund_change", args=[refund_id])

    def do(*, reason: str) -> tuple[str, str]:
        retry_failed(refund_id=refund_id, user=request.user, reason=reason)
        return f"Refund {refund_id} is due again.", here

    act = Act(
        title="Try a refund again",
        button="Try again",
        opts=Refund._meta,
        back=here,
        facts=_money_facts("refund", row),
        effects=(
            "The provider is asked once more for the same amount, under a new key: it refused the"
            " old one for certain.",
            "Its open item is closed as RETRIED; a new one opens if it is refused again.",
        ),
        do=do,
        form=ReasonForm,
    )
    return confirm(request, act)


@require_http_methods(["GET", "POST"])
def refund_outside(request: HttpRequest, refund_id: str) -> HttpResponse:
    """Record that a stuck refund was given back by another way.

    Raises:
        PermissionDenied: the user may not see or make refunds.
        Http404: no such refund.
    """
    require(request, VIEW_REFUND, REFUND_PERMISSION)
    return _settled_outside(
        request,
        get_object_or_404(Refund, pk=refund_id),
        name="refund",
        title="A refund was settled outside",
        effects=(
            "Nothing is sent: you say that the buyer has this money already, whole.",
            "The refund is SUCCEEDED and a paid order REFUNDED, with its event and units; its open"
            " item is closed. There is no way back.",
            "The provider is asked first: has it given the money back, that is recorded instead.",
        ),
        settle=partial(settle_refund_outside, refund_id=refund_id),
        done=f"Refund {refund_id} is recorded as given back outside.",
    )


@require_http_methods(["GET", "POST"])
def attempt_outside(request: HttpRequest, attempt_id: str) -> HttpResponse:
    """Record that what an attempt captured wrongly was given back by another way.

    Raises:
        PermissionDenied: the user may not see payments or make refunds.
        Http404: no such attempt.
    """
    require(request, VIEW_ATTEMPT, REFUND_PERMISSION)
    return _settled_outside(
        request,
        get_object_or_404(PaymentAttempt, pk=attempt_id),
        name="attempt",
        title="A payment was settled outside",
        effects=(
            "Nothing is sent: you say that the buyer has back what was captured.",
            "The attempt is FAILED: it pays nothing. An order that is still unpaid may be paid"
            " again. Its open item is closed.",
        ),
        settle=partial(settle_attempt_outside, attempt_id=attempt_id),
        done=f"Payment {attempt_id} is recorded as settled outside.",
    )


def _settled_outside(
    request: HttpRequest,
    row: Refund | PaymentAttempt,
    *,
    name: str,
    title: str,
    effects: tuple[str, ...],
    settle: Callable[..., None],
    done: str,
) -> HttpResponse:
    here = reverse(f"admin:orders_{row._meta.model_name}_change", args=[row.pk])

    def do(*, reason: str, reference: str) -> tuple[str, str]:
        settle(user=request.user, reference=reference, reason=reason)
        return done, here

    act = Act(
        title=title,
        button="Record it",
        opts=row._meta,
        back=here,
        facts=_money_facts(name, row),
        effects=effects,
        do=do,
        form=ReferenceForm,
    )
    return confirm(request, act)


def _money_facts(name: str, row: Refund | PaymentAttempt) -> list[tuple[str, object]]:
    return [
        (name, row.pk),
        ("order", row.order_id),
        ("status", row.status),
        ("amount asked for", money(row.amount_cents, row.currency)),
        ("what was wrong", row.error_class),
    ]


def _facts(order: Order) -> list[tuple[str, object]]:
    return [
        ("order", order.order_id),
        ("status", order.status),
        ("buyer", order.user_id),
        ("activity", order.activity_id),
        ("SKU", order.sku_id),
        ("quantity", order.quantity),
        ("amount", money(order.amount_cents, order.currency)),
    ]


def _units_leave(order: Order) -> str:
    if order.quantity == 1:
        return f"Its unit of SKU {order.sku_id} leaves"
    return f"Its {order.quantity} units of SKU {order.sku_id} leave"


def _page(order_id: str) -> str:
    return reverse("admin:orders_order_change", args=[order_id])

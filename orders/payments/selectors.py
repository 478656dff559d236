"""What buyers may read of their payments."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from orders.events import OrderRecord
from orders.models import PaymentAttempt
from orders.payments.states import AttemptStatus, RefundStatus
from orders.selectors import order_detail


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptView:
    """One attempt to pay, as its buyer sees it; `refund_status` is empty without a refund."""

    attempt_id: str
    attempt_no: int
    status: AttemptStatus
    amount_cents: int
    currency: str
    created_at: datetime
    settled_at: datetime | None
    error_class: str
    refund_status: RefundStatus | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PaymentState:
    """An order and all attempts to pay it, oldest first."""

    order: OrderRecord
    attempts: Sequence[AttemptView]


def payment_state(*, order_id: str, user_id: str) -> PaymentState | None:
    """Return the payments of a buyer's order, None when it is not his. Two statements."""
    order = order_detail(order_id=order_id, user_id=user_id)
    if order is None:
        return None
    rows = PaymentAttempt.objects.filter(order_id=order_id).select_related("refund")
    return PaymentState(
        order=order,
        attempts=[
            AttemptView(
                attempt_id=row.attempt_id,
                attempt_no=row.attempt_no,
                status=AttemptStatus(row.status),
                amount_cents=row.amount_cents,
                currency=row.currency,
                created_at=row.created_at,
                settled_at=row.settled_at,
                error_class=row.error_class,
                refund_status=RefundStatus(row.refund.status) if hasattr(row, "refund") else None,
            )
            for row in rows.order_by("attempt_no")
        ],
    )

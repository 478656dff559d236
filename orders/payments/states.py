"""States of a payment attempt, a refund and a stored webhook (pure)."""

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Final, TypeVar

# While the call that it is recorded for may still be running, nobody else drives a row.
LEASE_S: Final = 10
# A row that could not be driven and was tried more often waits a minute by now: a person looks.
ITEM_AFTER_TRIES: Final = 6
ERROR_CLASS_MAX: Final = 40  # as wide as the column
MISMATCH: Final = "AMOUNT_MISMATCH"  # another amount than asked for: error class and item's reason
MISMATCH_RETRY_S: Final = 3_600  # a person looks first

S = TypeVar("S", bound=StrEnum)


def back_off(tries: int) -> timedelta:
    """Return how long to wait after so many tries without a result: 1, 2, 4 … 60 s."""
    return timedelta(seconds=min(60, 2 ** min(tries, 6)))


class AttemptStatus(StrEnum):
    """Life of one attempt to pay an order."""

    CREATED = "CREATED"  # recorded, then sent; no answer is known
    SUBMITTED = "SUBMITTED"  # the provider has it and is still deciding
    SUBMIT_UNKNOWN = "SUBMIT_UNKNOWN"  # sent without a clear answer: settled by query
    SUCCEEDED = "SUCCEEDED"  # the money is in
    FAILED = "FAILED"


# FAILED → SUCCEEDED: a NOT_FOUND that came too early, or a failure that the provider takes back.
ATTEMPT_ALLOWED: Final[dict[AttemptStatus, frozenset[AttemptStatus]]] = {
    AttemptStatus.CREATED: frozenset(
        {
            AttemptStatus.SUBMITTED,
            AttemptStatus.SUBMIT_UNKNOWN,
            AttemptStatus.SUCCEEDED,
            AttemptStatus.FAILED,
        }
    ),
    AttemptStatus.SUBMITTED: frozenset({AttemptStatus.SUCCEEDED, AttemptStatus.FAILED}),
    AttemptStatus.SUBMIT_UNKNOWN: frozenset(
        {AttemptStatus.SUBMITTED, AttemptStatus.SUCCEEDED, AttemptStatus.FAILED}
    ),
    AttemptStatus.SUCCEEDED: frozenset(),
    AttemptStatus.FAILED: frozenset({AttemptStatus.SUCCEEDED}),
}
ATTEMPT_OPEN: Final = frozenset(
    {AttemptStatus.CREATED, AttemptStatus.SUBMITTED, AttemptStatus.SUBMIT_UNKNOWN}
)


class RefundStatus(StrEnum):
    """Life of the refund of one captured attempt."""

    DUE = "DUE"
    SUBMITTED = "SUBMITTED"  # recorded before the call; also: the provider is still deciding
    SUBMIT_UNKNOWN = "SUBMIT_UNKNOWN"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"  # a person must act: always with an open item


REFUND_ALLOWED: Final[dict[RefundStatus, frozenset[RefundStatus]]] = {
    RefundStatus.DUE: frozenset({RefundStatus.SUBMITTED}),
    RefundStatus.SUBMITTED: frozenset(
        {RefundStatus.SUBMIT_UNKNOWN, RefundStatus.SUCCEEDED, RefundStatus.FAILED}
    ),
    RefundStatus.SUBMIT_UNKNOWN: frozenset({RefundStatus.SUCCEEDED, RefundStatus.FAILED}),
    RefundStatus.SUCCEEDED: frozenset(),
    RefundStatus.FAILED: frozenset({RefundStatus.DUE, RefundStatus.SUCCEEDED}),
}
REFUND_OPEN: Final = frozenset(
    {RefundStatus.DUE, RefundStatus.SUBMITTED, RefundStatus.SUBMIT_UNKNOWN}
)


class RefundReason(StrEnum):
    """Why captured money is not kept."""

    LATE_PAYMENT = "LATE_PAYMENT"  # the order was cancelled meanwhile
    SECOND_CAPTURE = "SECOND_CAPTURE"  # the order is paid by another attempt
    OPERATOR = "OPERATOR"
    ACTIVITY_VOIDED = "ACTIVITY_VOIDED"


class WebhookStatus(StrEnum):
    """What became of a webhook with a good signature."""

    PARKED = "PARKED"  # came before its payment; tried again
    APPLIED = "APPLIED"
    IGNORED = "IGNORED"  # tells nothing new, or a kind that we do not use
    TICKETED = "TICKETED"  # a person must look: always with an open item


WEBHOOK_ALLOWED: Final[dict[WebhookStatus, frozenset[WebhookStatus]]] = {
    WebhookStatus.PARKED: frozenset(
        {WebhookStatus.APPLIED, WebhookStatus.IGNORED, WebhookStatus.TICKETED}
    ),
    WebhookStatus.APPLIED: frozenset(),
    WebhookStatus.IGNORED: frozenset(),
    WebhookStatus.TICKETED: frozenset(),
}


def sources(allowed: Mapping[S, frozenset[S]], target: S) -> list[str]:
    """Return the states from which `target` may be reached: the guard of its UPDATE."""
    return sorted(state.value for state, targets in allowed.items() if target in targets)

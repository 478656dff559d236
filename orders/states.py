"""States of an order and of a reservation's outcome in PostgreSQL (pure)."""

from enum import StrEnum
from typing import Final


class OrderStatus(StrEnum):
    """Life of an order."""

    CREATED = "CREATED"
    PAYING = "PAYING"
    PAID = "PAID"
    FULFILLING = "FULFILLING"
    FULFILLED = "FULFILLED"
    CANCELED = "CANCELED"
    REFUNDING = "REFUNDING"
    REFUNDED = "REFUNDED"


ORDER_ALLOWED: Final[dict[OrderStatus, frozenset[OrderStatus]]] = {
    OrderStatus.CREATED: frozenset({OrderStatus.PAYING, OrderStatus.PAID, OrderStatus.CANCELED}),
    OrderStatus.PAYING: frozenset({OrderStatus.PAID, OrderStatus.CANCELED}),
    OrderStatus.PAID: frozenset({OrderStatus.FULFILLING, OrderStatus.REFUNDING}),
    OrderStatus.FULFILLING: frozenset({OrderStatus.FULFILLED}),
    OrderStatus.FULFILLED: frozenset(),
    OrderStatus.CANCELED: frozenset(),
    OrderStatus.REFUNDING: frozenset({OrderStatus.REFUNDED}),
    OrderStatus.REFUNDED: frozenset(),
}

# Whoever has one of these has not paid yet, and it may still be cancelled.
UNPAID: Final = frozenset({OrderStatus.CREATED, OrderStatus.PAYING})
# A user and SKU have at most one order outside these.
ENDED: Final = frozenset({OrderStatus.CANCELED, OrderStatus.REFUNDED})


class CancelReason(StrEnum):
    """Why an order was cancelled."""

    PAYMENT_TIMEOUT = "PAYMENT_TIMEOUT"
    USER = "USER"
    OPERATOR = "OPERATOR"


class ReservationOutcome(StrEnum):
    """What the order transaction made of a reservation."""

    ORDERED = "ORDERED"
    REJECTED = "REJECTED"


class RejectReason(StrEnum):
    """Business rejects: results, never retries."""

    NO_FINAL_STOCK = "NO_FINAL_STOCK"
    DUPLICATE_ORDER = "DUPLICATE_ORDER"
    RESERVATION_EXPIRED = "RESERVATION_EXPIRED"
    ACTIVITY_VOIDED = "ACTIVITY_VOIDED"
    COMPENSATED = "COMPENSATED"


class ReleaseState(StrEnum):
    """Whether units must go back to the gate: the driver's progress, not a wish."""

    NONE = "NONE"
    DUE = "DUE"
    DONE = "DONE"


RELEASE_ALLOWED: Final[dict[ReleaseState, frozenset[ReleaseState]]] = {
    ReleaseState.NONE: frozenset({ReleaseState.DUE}),
    ReleaseState.DUE: frozenset({ReleaseState.DONE}),
    ReleaseState.DONE: frozenset(),
}


class NotificationStatus(StrEnum):
    """Life of a notification. SENDING is committed before anything is sent."""

    PENDING = "PENDING"
    SENDING = "SENDING"
    SENT = "SENT"
    UNKNOWN = "UNKNOWN"  # a crash or a lost answer while sending: a person decides
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"  # the buyer has no address


# UNKNOWN → SENT: the sender was only slow. → PENDING: refused before it was sent, or a person.
NOTIFICATION_ALLOWED: Final[dict[NotificationStatus, frozenset[NotificationStatus]]] = {
    NotificationStatus.PENDING: frozenset({NotificationStatus.SENDING}),
    NotificationStatus.SENDING: frozenset(
        {
            NotificationStatus.SENT,
            NotificationStatus.PENDING,
            NotificationStatus.UNKNOWN,
            NotificationStatus.FAILED,
            NotificationStatus.SKIPPED,
        }
    ),
    NotificationStatus.SENT: frozenset(),
    NotificationStatus.UNKNOWN: frozenset({NotificationStatus.SENT, NotificationStatus.PENDING}),
    NotificationStatus.FAILED: frozenset({NotificationStatus.PENDING}),
    NotificationStatus.SKIPPED: frozenset(),
}

"""What a buyer is told about his reservation, from what PostgreSQL or an event says (pure)."""

from inventory.contracts import PublicStatus
from orders.states import OrderStatus, RejectReason


def of_order(status: str) -> PublicStatus:
    """Map an order's status: everything that is not ended is ORDERED."""
    if status in {OrderStatus.CANCELED, OrderStatus.REFUNDED}:
        return PublicStatus.CANCELED
    return PublicStatus.ORDERED


def of_reject(reason: str) -> PublicStatus:
    """Map a reject: what came too late is EXPIRED, everything else REJECTED with its reason."""
    if reason == RejectReason.RESERVATION_EXPIRED:
        return PublicStatus.EXPIRED
    return PublicStatus.REJECTED

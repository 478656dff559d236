"""What orders raises (pure)."""


class OrdersError(Exception):
    """Root of the tree."""


class BusinessReject(OrdersError):
    """A result that is a no: `reason` is one of RejectReason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class OrderNotFound(OrdersError):
    """No such order, or not the caller's."""


class OrderStateConflict(OrdersError):
    """The order is in another state than the transition needs; `status` tells which."""

    def __init__(self, status: str) -> None:
        super().__init__(f"the order is {status}")
        self.status = status


class VoidRefused(OrdersError):
    """A sale cannot be declared void like this; the text says why."""

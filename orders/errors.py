"""What orders raises (pure)."""


class OrdersError(Exception):
    """Root of the tree."""


class OrderNotFound(OrdersError):
    """No such order, or not the caller's."""


class OrderStateConflict(OrdersError):
    """The order is in another state than the transition needs; `status` tells which."""

    def __init__(self, status: str) -> None:
        super().__init__(f"the order is {status}")
        self.status = status


class VoidRefused(OrdersError):
    """A sale cannot be declared void like this; the text says why."""


class TicketRefused(OrdersError):
    """What a ticket asks for a held reservation cannot be done; the text says why."""


class RebuildWaits(OrdersError):
    """A rebuild cannot go on now; running it again starts from the top."""


class SettlementRefused(OrdersError):
    """A sale cannot be settled yet; `reasons` names everything that is still on its way."""

    def __init__(self, reasons: tuple[str, ...]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons

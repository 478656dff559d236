"""What inventory raises. The tree is small on purpose (pure)."""


class InventoryError(Exception):
    """Anything that inventory refuses or cannot do now."""


class OperationRefused(InventoryError):
    """An operator's request that the sale's state does not allow. The text says why and what to do."""


class GateUnavailable(InventoryError):
    """Redis did not answer within the deadline: what it did is unknown."""


class GateLost(InventoryError):
    """A gate that was opened once has no keys any more: fail closed, only `rebuild_gate` reopens."""


class OutOfStock(InventoryError):
    """The conditional update of the final stock found too few units."""

"""What inventory raises. The tree is small on purpose (pure)."""


class InventoryError(Exception):
    """Anything that inventory refuses or cannot do now."""


class OperationRefused(InventoryError):
    """The sale's state does not allow an operator's request. The text says why and what to do."""


class RebuildOvertaken(InventoryError):
    """A newer rebuild run began, or the gate is not this run's any more: it writes nothing."""


class GateUnavailable(InventoryError):
    """Redis did not answer within the deadline: what it did is unknown."""


class GateScriptError(InventoryError):
    """A script refused its arguments or met a key of a wrong type: a bug, nothing was written."""


class OutOfStock(InventoryError):
    """The conditional update of the final stock found too few units."""

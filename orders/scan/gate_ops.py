"""Drives operators' changes of running sales: the row is the intent, this makes the gate follow."""

from typing import Final

from inventory.operations import WaitingOperation, drive_all, waiting_operations

BATCH: Final = 50


class GateOpsJob:
    """Drives gate operations until each is DONE or REFUSED: a page a round, then from the start."""

    name: Final = "gate_ops"
    tick_s: Final = 0.2

    def __init__(self) -> None:
        self._after: WaitingOperation | None = None

    def run_once(self) -> int:
        """Drive one page of what is requested; returns how many operations ended.

        Raises:
            GateUnavailable: Redis cannot be reached for one; the others had their turn.

        Cost: one statement, and what the operations cost.
        """
        page = waiting_operations(limit=BATCH, after=self._after)
        self._after = page[-1] if len(page) == BATCH else None
        return drive_all(page)

    def close(self) -> None:
        """Nothing to close."""

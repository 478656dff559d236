"""Drives operators' changes of running sales: the row is the intent, this makes the gate follow."""

from typing import Final

from inventory.operations import drive

BATCH: Final = 50


class GateOpsJob:
    """Drives gate operations until each is DONE or REFUSED."""

    name: Final = "gate_ops"
    tick_s: Final = 0.2

    def run_once(self) -> int:
        """Drive what is requested; returns how many operations ended. Cost: see `drive`."""
        return drive(limit=BATCH)

    def close(self) -> None:
        """Nothing to close."""

"""Ends the live orders of sales that were declared void; one made meanwhile is found next time."""

from typing import Final

from orders.void import settle_voided

BATCH: Final = 100


class VoidJob:
    """Cancels and refunds, a batch a round."""

    name: Final = "void"
    tick_s: Final = 1.0

    def run_once(self) -> int:
        """End one batch; returns how many orders. Cost: see `settle_voided`."""
        return settle_voided(BATCH)

    def close(self) -> None:
        """Nothing to close."""

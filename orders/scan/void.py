"""Stops sales declared void and ends their live orders; one made meanwhile is found next time."""

from typing import Final

from orders.void import settle_voided, stop_voided

BATCH: Final = 100


class VoidJob:
    """Stops, cancels and refunds, a batch a round."""

    name: Final = "void"
    tick_s: Final = 1.0

    def run_once(self) -> int:
        """End one batch; returns how many orders. Cost: `stop_voided` and `settle_voided`."""
        stop_voided()
        return settle_voided(BATCH)

    def close(self) -> None:
        """Nothing to close."""

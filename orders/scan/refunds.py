"""Drives refunds from DUE to their end; a refused one is an item for people by then."""

from typing import Final

from orders.payments import refunds
from orders.scan.unanswered import drive_due


class RefundsJob:
    """Drives open refunds, those that wait longest first."""

    name: Final = "refunds"
    tick_s: Final = 0.5

    def run_once(self) -> int:
        """Drive one batch; returns how many refunds were sent or asked about.

        Cost: three statements; for each refund one or two calls and one short transaction.
        """
        return drive_due(refunds.claim_due, refunds.drive, refunds.set_aside)

    def close(self) -> None:
        """Nothing to close."""

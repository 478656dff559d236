"""Drives refunds from DUE to their end; a refused one is an item for people by then."""

from typing import Final

from orders.payments import drive_refunds
from orders.scan.unanswered import BATCH, drive_due


class RefundsJob:
    """Drives open refunds, those that wait longest first."""

    name: Final = "refunds"
    tick_s: Final = 0.5

    def __init__(self) -> None:
        self.has_more = False

    def run_once(self) -> int:
        """Drive one batch; returns how many refunds were sent or asked about.

        Cost: three statements; for each refund one or two calls and one short transaction.
        """
        done = drive_due(drive_refunds.claim_due, drive_refunds.drive, drive_refunds.set_aside)
        self.has_more = done == BATCH
        return done

    def close(self) -> None:
        """Nothing to close."""

"""Settles attempts to pay that have no clear answer: asks the provider, whatever the order's state.

A row that was recorded and whose process died before or after the call looks the same here.
"""

from typing import Final

from orders.payments import attempts
from orders.scan.unanswered import BATCH, drive_due


class PaymentsJob:
    """Drives open attempts, those that wait longest first."""

    name: Final = "payments"
    tick_s: Final = 1.0

    def __init__(self) -> None:
        self.has_more = False

    def run_once(self) -> int:
        """Drive one batch; returns how many attempts were asked about.

        Cost: two statements; for each attempt one or two calls and one short transaction.
        """
        done = drive_due(attempts.claim_due, attempts.drive, attempts.set_aside)
        self.has_more = done == BATCH
        return done

    def close(self) -> None:
        """Nothing to close."""

"""Drives refunds from DUE to their end; a refused one is an item for people by then."""

from typing import Final

from orders.payments import providers, refunds
from orders.payments.port import Outcome, ProviderUnavailable

BATCH: Final = 20
GIVE_UP_AFTER: Final = 3


class RefundsJob:
    """Drives open refunds, those that wait longest first."""

    name: Final = "refunds"
    tick_s: Final = 0.5

    def run_once(self) -> int:
        """Drive one batch; returns how many refunds were sent or asked about.

        Cost: three statements; for each refund one or two calls and one short transaction.
        """
        try:
            providers.current()
        except ProviderUnavailable:
            return 0
        unclear = 0
        due = refunds.claim_due(BATCH)
        for done, refund in enumerate(due, start=1):
            outcome = refunds.drive(refund, providers.named(refund.provider))
            unclear += outcome is Outcome.UNKNOWN
            if unclear >= GIVE_UP_AFTER:
                return done
        return len(due)

    def close(self) -> None:
        """Nothing to close."""

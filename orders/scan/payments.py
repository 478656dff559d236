"""Settles attempts to pay that have no clear answer: asks the provider, whatever the order's state.

A row that was recorded and whose process died before or after the call looks the same here.
"""

from typing import Final

from orders.payments import attempts, providers
from orders.payments.port import Outcome, ProviderUnavailable

BATCH: Final = 20
# A provider that does not answer costs its deadline each time: no more of them in this round.
GIVE_UP_AFTER: Final = 3


class PaymentsJob:
    """Drives open attempts, those that wait longest first."""

    name: Final = "payments"
    tick_s: Final = 1.0

    def run_once(self) -> int:
        """Drive one batch; returns how many attempts were asked about.

        Cost: two statements; for each attempt one or two calls and one short transaction.
        """
        try:
            providers.current()
        except ProviderUnavailable:
            return 0
        unclear = 0
        due = attempts.claim_due(BATCH)
        for done, attempt in enumerate(due, start=1):
            outcome = attempts.drive(attempt, providers.named(attempt.provider))
            unclear += outcome is Outcome.UNKNOWN
            if unclear >= GIVE_UP_AFTER:
                return done
        return len(due)

    def close(self) -> None:
        """Nothing to close."""

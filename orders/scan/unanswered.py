"""Drives what the payment provider still has to answer: payments and refunds alike."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from orders.payments import providers
from orders.payments.port import Outcome, PaymentProvider, ProviderUnavailable

BATCH: Final = 20
# A provider that does not answer costs its deadline each time: no more of them in this round.
GIVE_UP_AFTER: Final = 3


class Due(Protocol):
    """Something whose provider is asked."""

    @property
    def provider(self) -> str:
        """The provider's name."""
        ...


D = TypeVar("D", bound=Due)


def drive_due(
    claim_due: Callable[[int], Sequence[D]], drive: Callable[[D, PaymentProvider], Outcome]
) -> int:
    """Drive one batch; returns how many were asked about, 0 without a provider.

    Args:
        claim_due: takes at most so many whose time has come.
        drive: asks the provider about one.
    """
    try:
        providers.current()
    except ProviderUnavailable:
        return 0
    unclear = 0
    due = claim_due(BATCH)
    for done, one in enumerate(due, start=1):
        unclear += drive(one, providers.named(one.provider)) is Outcome.UNKNOWN
        if unclear >= GIVE_UP_AFTER:
            return done
    return len(due)

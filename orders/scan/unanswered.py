"""Drives what the payment provider still has to answer: payments and refunds alike."""

import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

import structlog
from django.db import InterfaceError, OperationalError

from orders.payments import providers
from orders.payments.port import Outcome, PaymentProvider, ProviderUnavailable
from orders.payments.states import LEASE_S

BATCH: Final = 20
# A provider that does not answer costs its deadline each time: no more of them in this round.
GIVE_UP_AFTER: Final = 3
# A round stays far below what the watchdog takes for a hang, and begins nothing whose lease has
# ended: another scanner may have it by then.
ROUND_S: Final = float(LEASE_S)

log = structlog.get_logger(__name__)


class Due(Protocol):
    """Something whose provider is asked."""

    @property
    def provider(self) -> str:
        """The provider's name."""
        ...


D = TypeVar("D", bound=Due)


def drive_due(
    claim_due: Callable[[int], Sequence[D]],
    drive: Callable[[D, PaymentProvider], Outcome],
    set_aside: Callable[[D, str], None],
) -> int:
    """Drive one batch; returns how many were asked about.

    One that cannot be driven (its provider is not configured any more, an answer that cannot be
    stored) is set aside for a while: its neighbours do not wait for it.

    Args:
        claim_due: takes at most so many whose time has come.
        drive: asks the provider about one and returns what the last call led to.
        set_aside: puts one off, with the name of what was wrong.

    Raises:
        OperationalError, InterfaceError: the database is away.
    """
    unclear = 0
    ends_at = time.monotonic() + ROUND_S
    due = claim_due(BATCH)
    for done, one in enumerate(due, start=1):
        try:
            unclear += drive(one, providers.named(one.provider)) is Outcome.UNKNOWN
        except (OperationalError, InterfaceError):
            raise
        except ProviderUnavailable as error:
            log.warning("provider_unavailable", provider=one.provider, error=str(error))
            set_aside(one, "PROVIDER_UNAVAILABLE")
        except Exception as error:
            log.exception("provider_answer_not_stored", provider=one.provider)
            set_aside(one, type(error).__name__)
        if unclear >= GIVE_UP_AFTER or time.monotonic() > ends_at:
            return done
    return len(due)

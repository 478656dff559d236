"""The provider's port (pure): what we ask of any payment provider, and what its answers mean.

Every call takes our idempotency key: the same key names the same payment or refund for ever.
Implementations make one attempt within their deadline; retries belong to the state machines.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Outcome(StrEnum):
    """What is known after a call."""

    OK = "OK"  # the provider knows it; `state` tells how far it is
    DEFINITE = "DEFINITE"  # refused: nothing was done and nothing will be
    UNKNOWN = "UNKNOWN"  # time-out, 5xx, unreadable: it may have been done
    NOT_FOUND = "NOT_FOUND"  # (queries) not known to the provider, or not yet


class ProviderState(StrEnum):
    """How far the provider is with a payment or refund."""

    PENDING = "PENDING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """An answer about one payment or refund. Everything but `outcome` may be missing.

    `error_class` is a stable code for rows, logs and metrics, never the provider's text.
    """

    outcome: Outcome
    state: ProviderState | None = None
    provider_id: str = ""
    amount_cents: int = 0
    currency: str = ""
    error_class: str = ""


class EventKind(StrEnum):
    """What a webhook tells."""

    PAYMENT_SUCCEEDED = "PAYMENT_SUCCEEDED"
    PAYMENT_FAILED = "PAYMENT_FAILED"
    REFUND_SUCCEEDED = "REFUND_SUCCEEDED"
    REFUND_FAILED = "REFUND_FAILED"
    OTHER = "OTHER"


@dataclass(frozen=True, kw_only=True, slots=True)
class ProviderEvent:
    """A webhook whose signature is good. `key` is our idempotency key."""

    event_id: str
    kind: EventKind
    key: str
    provider_id: str
    amount_cents: int
    currency: str


class WebhookRefused(Exception):
    """Not the provider's, too old, or unreadable; `reason` is a stable code."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, kw_only=True, slots=True)
class BookEntry:
    """One line of the provider's own book."""

    is_refund: bool
    key: str
    provider_id: str
    reference: str  # our order id
    state: ProviderState
    amount_cents: int
    currency: str


class PaymentProvider(Protocol):
    """A payment provider. Calls are made outside of transactions only (RuntimeError otherwise)."""

    @property
    def name(self) -> str:
        """Short name, kept in rows and in the webhook's address."""
        ...

    @property
    def not_found_window_s(self) -> int:
        """How long after a send NOT_FOUND says nothing, as the provider states it."""
        ...

    def create_payment(
        self, *, key: str, reference: str, amount_cents: int, currency: str
    ) -> Answer:
        """Authorise and capture."""
        ...

    def query_payment(self, *, key: str) -> Answer:
        """Ask what became of a payment."""
        ...

    def refund(self, *, key: str, provider_payment_id: str, amount_cents: int) -> Answer:
        """Give captured money back."""
        ...

    def query_refund(self, *, key: str) -> Answer:
        """Ask what became of a refund."""
        ...

    def book(self, *, after: int, limit: int) -> tuple[Sequence[BookEntry], int]:
        """Return a page of the provider's book and the cursor after it (0: it was the last).

        Raises:
            ProviderUnavailable: no page came.
        """
        ...

    def read_webhook(
        self, *, headers: Mapping[str, str], body: bytes, now_s: float
    ) -> ProviderEvent:
        """Check signature and age of a webhook and read it.

        Raises:
            WebhookRefused: it is forged, too old or unreadable.
        """
        ...

    def read_event(self, body: bytes) -> ProviderEvent:
        """Read the body of a webhook that was checked before.

        Raises:
            WebhookRefused: it is unreadable.
        """
        ...


class ProviderUnavailable(Exception):
    """The provider's book cannot be read now, or no provider is configured."""

"""What becomes of one delivered message: a closed set, matched with `assert_never` (pure)."""

from dataclasses import dataclass
from enum import StrEnum


class Disposition(StrEnum):
    """The five ends of a delivery."""

    ACK_DONE = "ACK_DONE"  # applied in a committed transaction
    ACK_DUPLICATE = "ACK_DUPLICATE"  # had been applied before
    ACK_REJECTED = "ACK_REJECTED"  # a business reject is a result, committed
    RETRY = "RETRY"  # no ack: comes back after the invisible time
    QUARANTINE = "QUARANTINE"  # row committed, then acked


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """A disposition with its reason (a stable code, never free text with data in it)."""

    disposition: Disposition
    reason: str = ""
    detail: str = ""


DONE = Decision(disposition=Disposition.ACK_DONE)
DUPLICATE = Decision(disposition=Disposition.ACK_DUPLICATE)
# A replay that is meant for another group: acked without an effect.
OTHER_GROUP = Decision(disposition=Disposition.ACK_DONE, reason="REPLAY_FOR_ANOTHER_GROUP")


def rejected(reason: str) -> Decision:
    """Return the decision for a committed business reject."""
    return Decision(disposition=Disposition.ACK_REJECTED, reason=reason)


def retry(reason: str, detail: str = "") -> Decision:
    """Return the decision for a message that should come back."""
    return Decision(disposition=Disposition.RETRY, reason=reason, detail=detail)


def quarantine(reason: str, detail: str = "") -> Decision:
    """Return the decision for a message that a person must look at."""
    return Decision(disposition=Disposition.QUARANTINE, reason=reason, detail=detail)

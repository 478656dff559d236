"""One death, whatever source it comes from (pure)."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from messaging.facts import BodyFacts


@dataclass(frozen=True, kw_only=True, slots=True)
class Death:
    """A message that died, and how.

    Args:
        group: registry name of the consumer group (or OUTBOX).
        message_id: ours.
        source: DLQ, CONSUMER or OUTBOX.
        origin: names this copy and no other; the same copy again is no second death.
        topic: where it was published first, as far as known.
        error_class: stable code.
        error: what went wrong.
        facts: the reservation, read leniently.
    """

    group: str
    message_id: str
    source: str
    origin: str
    topic: str
    tag: str
    keys: str
    properties: Mapping[str, str]
    body: bytes
    error_class: str
    error: str
    delivery_attempt: int
    died_at: datetime
    facts: BodyFacts
    broker_message_id: str = ""
    queue_id: int | None = None
    queue_offset: int | None = None

    @property
    def sha256(self) -> str:
        """Return the hash of its bytes."""
        return hashlib.sha256(self.body).hexdigest()

    @property
    def order_id(self) -> str:
        """Return the order among its keys, else the one that the purchase's ULID would have."""
        for key in self.keys.split():
            if key.startswith("ord_"):
                return key[:40]
        reservation_id = self.facts.reservation_id
        return f"ord_{reservation_id.removeprefix('rsv_')}" if reservation_id else ""

    @property
    def trace_id(self) -> str:
        """Return the trace that the message belongs to; empty when it names none."""
        parts = str(self.properties.get("traceparent", "")).split("-")
        return parts[1] if len(parts) == 4 and len(parts[1]) == 32 else ""

    @property
    def replay_id(self) -> str:
        """Return the replay that it died in; empty for its first life."""
        return str(self.properties.get("replay_id", ""))[:40]

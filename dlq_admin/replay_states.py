"""States of replay batches and their items (pure), and every legal jump.

The same jumps stand in a table of the database, where a trigger checks them
(`dlq_admin/sql/replay.sql`); a test compares the two. Source: docs/operations/replay.md.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Disposition(StrEnum):
    """What a batch does with its messages."""

    REPLAY = "REPLAY"
    REPLAY_EDITED = "REPLAY_EDITED"
    COMPENSATE = "COMPENSATE"
    DISCARD = "DISCARD"


class BatchStatus(StrEnum):
    """The life of a batch; a single replay is a batch of one."""

    DRAFT = "DRAFT"
    PLANNED = "PLANNED"
    PENDING_APPROVAL = "PENDING_APPROVAL"
    APPROVED = "APPROVED"
    REJECTED = "REJECTED"
    CANARY = "CANARY"
    RUNNING = "RUNNING"
    THROTTLED = "THROTTLED"
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    COMPLETED_WITH_FAILURES = "COMPLETED_WITH_FAILURES"
    ABORTED = "ABORTED"
    EXPIRED = "EXPIRED"


class ItemStatus(StrEnum):
    """The life of one message in a batch."""

    DRAFT = "DRAFT"
    PLANNED = "PLANNED"
    BLOCKED = "BLOCKED"
    PENDING_APPROVAL = "PENDING_APPROVAL"
    APPROVED = "APPROVED"
    REJECTED = "REJECTED"
    EXPIRED = "EXPIRED"
    CLAIMED = "CLAIMED"
    STALE = "STALE"
    CANCELLED = "CANCELLED"
    SENDING = "SENDING"
    SENT = "SENT"
    SEND_UNKNOWN = "SEND_UNKNOWN"
    SEND_FAILED = "SEND_FAILED"
    PROCESSED_OK = "PROCESSED_OK"
    PROCESSED_IDEMPOTENT = "PROCESSED_IDEMPOTENT"
    BUSINESS_REJECTED = "BUSINESS_REJECTED"
    FAILED_AGAIN = "FAILED_AGAIN"
    COMPENSATED = "COMPENSATED"
    DISCARDED = "DISCARDED"
    VERIFIED = "VERIFIED"
    VERIFY_FAILED = "VERIFY_FAILED"


_B = BatchStatus
BATCH_ALLOWED: Final[Mapping[BatchStatus, frozenset[BatchStatus]]] = {
    _B.DRAFT: frozenset({_B.PLANNED, _B.ABORTED}),
    _B.PLANNED: frozenset({_B.PENDING_APPROVAL, _B.ABORTED, _B.EXPIRED}),
    _B.PENDING_APPROVAL: frozenset({_B.APPROVED, _B.REJECTED, _B.EXPIRED, _B.ABORTED}),
    _B.APPROVED: frozenset({_B.CANARY, _B.EXPIRED, _B.ABORTED}),
    _B.CANARY: frozenset(
        {_B.RUNNING, _B.PAUSED, _B.COMPLETED, _B.COMPLETED_WITH_FAILURES, _B.ABORTED}
    ),
    _B.RUNNING: frozenset(
        {_B.PAUSED, _B.THROTTLED, _B.COMPLETED, _B.COMPLETED_WITH_FAILURES, _B.ABORTED}
    ),
    _B.THROTTLED: frozenset(
        {_B.RUNNING, _B.PAUSED, _B.COMPLETED, _B.COMPLETED_WITH_FAILURES, _B.ABORTED}
    ),
    _B.PAUSED: frozenset({_B.CANARY, _B.RUNNING, _B.ABORTED}),
    _B.REJECTED: frozenset(),
    _B.COMPLETED: frozenset(),
    _B.COMPLETED_WITH_FAILURES: frozenset(),
    _B.ABORTED: frozenset(),
    _B.EXPIRED: frozenset(),
}
# One of these for each consumer group, by a partial unique index.
BATCH_ACTIVE: Final = (_B.CANARY, _B.RUNNING, _B.THROTTLED, _B.PAUSED)
BATCH_SENDS: Final = (_B.CANARY, _B.RUNNING, _B.THROTTLED)
BATCH_ENDED: Final = (
    _B.REJECTED, _B.COMPLETED, _B.COMPLETED_WITH_FAILURES, _B.ABORTED, _B.EXPIRED,
)  # fmt: skip

_I = ItemStatus
_OUTCOMES: Final = frozenset(
    {_I.PROCESSED_OK, _I.PROCESSED_IDEMPOTENT, _I.BUSINESS_REJECTED, _I.FAILED_AGAIN}
)
ITEM_ALLOWED: Final[Mapping[ItemStatus, frozenset[ItemStatus]]] = {
    _I.DRAFT: frozenset({_I.PLANNED, _I.BLOCKED, _I.CANCELLED}),
    _I.PLANNED: frozenset({_I.PENDING_APPROVAL, _I.EXPIRED, _I.CANCELLED}),
    _I.PENDING_APPROVAL: frozenset({_I.APPROVED, _I.REJECTED, _I.EXPIRED, _I.CANCELLED}),
    _I.APPROVED: frozenset({_I.CLAIMED, _I.EXPIRED, _I.CANCELLED}),
    _I.CLAIMED: frozenset({_I.SENDING, _I.STALE, _I.COMPENSATED, _I.DISCARDED, _I.CANCELLED}),
    _I.SENDING: frozenset({_I.SENT, _I.SEND_UNKNOWN, _I.SEND_FAILED}) | _OUTCOMES,
    _I.SENT: frozenset({_I.SEND_UNKNOWN}) | _OUTCOMES,
    _I.SEND_UNKNOWN: frozenset({_I.SENDING}) | _OUTCOMES,
    _I.SEND_FAILED: frozenset({_I.SENDING, _I.FAILED_AGAIN}),
    _I.PROCESSED_OK: frozenset({_I.VERIFIED, _I.VERIFY_FAILED}),
    _I.PROCESSED_IDEMPOTENT: frozenset({_I.VERIFIED, _I.VERIFY_FAILED}),
    _I.BUSINESS_REJECTED: frozenset({_I.VERIFIED, _I.VERIFY_FAILED}),
    _I.BLOCKED: frozenset(),
    _I.REJECTED: frozenset(),
    _I.EXPIRED: frozenset(),
    # Its message may be planned again: a new DRAFT in a new batch, for the approval is of this one.
    _I.STALE: frozenset(),
    _I.CANCELLED: frozenset(),
    _I.FAILED_AGAIN: frozenset(),
    _I.COMPENSATED: frozenset(),
    _I.DISCARDED: frozenset(),
    _I.VERIFIED: frozenset(),
    _I.VERIFY_FAILED: frozenset(),
}
ITEM_ENDED: Final = frozenset(status for status, after in ITEM_ALLOWED.items() if not after)
ITEM_GOOD: Final = frozenset({_I.VERIFIED, _I.COMPENSATED, _I.DISCARDED})
ITEM_IN_FLIGHT: Final = frozenset({_I.SENDING, _I.SENT, _I.SEND_UNKNOWN, _I.SEND_FAILED})
ITEM_PROCESSED: Final = frozenset({_I.PROCESSED_OK, _I.PROCESSED_IDEMPOTENT, _I.BUSINESS_REJECTED})

"""States of dead messages, tickets, replay items and batches, and every legal move (pure).

The charts in docs/operations/dlq.md are made from the `*_ALLOWED` tables. Each move is one guarded
UPDATE in its service; what is not in the table does not happen.
"""

from enum import StrEnum
from typing import Final


class MessageStatus(StrEnum):
    """OPEN waits for its ticket; CLOSED has a resolution."""

    OPEN = "OPEN"
    CLOSED = "CLOSED"


class Resolution(StrEnum):
    """How a dead message ended."""

    SETTLED = "SETTLED"  # its effect was there already; closed by itself, with the evidence
    VERIFIED = "VERIFIED"  # replayed, and the invariants hold
    COMPENSATED = "COMPENSATED"  # its reservation was rejected and given back
    DISCARDED = "DISCARDED"  # two people said: no effect


class TicketStatus(StrEnum):
    """Life of a ticket."""

    NEW = "NEW"
    ACKED = "ACKED"
    CLASSIFIED = "CLASSIFIED"
    FIXING = "FIXING"
    READY = "READY"
    REPLAYING = "REPLAYING"
    VERIFYING = "VERIFYING"
    CLOSED = "CLOSED"
    WAITING = "WAITING"
    DISCARD_PENDING = "DISCARD_PENDING"
    DISCARDED = "DISCARDED"
    MERGED = "MERGED"
    REOPENED = "REOPENED"


_T = TicketStatus
# CLOSED from here: by itself, when every message turned out to be settled.
_SIDE: Final = frozenset({_T.WAITING, _T.MERGED, _T.CLOSED})
# VERIFYING from here: by itself, when the last message ended and others were not just settled.
_JUDGED: Final = frozenset({_T.VERIFYING}) | _SIDE

# WAITING goes back to the state it came from (the row remembers it), or on when its replay does.
TICKET_ALLOWED: Final[dict[TicketStatus, frozenset[TicketStatus]]] = {
    _T.NEW: frozenset({_T.ACKED}) | _SIDE,
    _T.ACKED: frozenset({_T.CLASSIFIED}) | _SIDE,
    _T.CLASSIFIED: frozenset({_T.CLASSIFIED, _T.FIXING, _T.READY, _T.DISCARD_PENDING}) | _JUDGED,
    _T.FIXING: frozenset({_T.CLASSIFIED, _T.READY}) | _JUDGED,
    _T.READY: frozenset({_T.CLASSIFIED, _T.FIXING, _T.REPLAYING}) | _JUDGED,
    _T.REPLAYING: frozenset({_T.VERIFYING, _T.WAITING}),
    _T.VERIFYING: frozenset({_T.FIXING, _T.REPLAYING, _T.CLOSED, _T.WAITING}),
    _T.CLOSED: frozenset({_T.REOPENED}),
    _T.WAITING: frozenset(
        {
            _T.NEW,
            _T.ACKED,
            _T.CLASSIFIED,
            _T.FIXING,
            _T.READY,
            _T.REPLAYING,
            _T.VERIFYING,
            _T.DISCARD_PENDING,
            _T.REOPENED,
            _T.MERGED,
            _T.CLOSED,
        }
    ),
    _T.DISCARD_PENDING: frozenset({_T.CLASSIFIED, _T.DISCARDED, _T.WAITING}),
    _T.DISCARDED: frozenset(),
    _T.MERGED: frozenset(),
    _T.REOPENED: frozenset({_T.ACKED}) | _SIDE,
}

TICKET_OPEN: Final[frozenset[TicketStatus]] = frozenset(_T) - {_T.CLOSED, _T.DISCARDED, _T.MERGED}


class Disposition(StrEnum):
    """What shall become of a ticket's messages."""

    REPLAY = "REPLAY"
    REPLAY_EDITED = "REPLAY_EDITED"
    COMPENSATE = "COMPENSATE"
    DISCARD = "DISCARD"


class Cause(StrEnum):
    """Why they died, as a person judges."""

    TRANSIENT = "TRANSIENT"  # a dependency was away; it is back
    HANDLER_BUG = "HANDLER_BUG"  # our code; needs a fix and a new build
    POISON_FORMAT = "POISON_FORMAT"  # the bytes cannot be read
    BAD_DATA = "BAD_DATA"  # readable, but contradicts what is stored
    CONFIGURATION = "CONFIGURATION"
    UNKNOWN = "UNKNOWN"


class Severity(StrEnum):
    """SEV1: core group while its sale runs; SEV2: either of the two; SEV3: neither."""

    SEV1 = "SEV1"
    SEV2 = "SEV2"
    SEV3 = "SEV3"


class SlaKind(StrEnum):
    """What a clock waits for."""

    ACK = "ACK"
    PLAN = "PLAN"
    APPROVE = "APPROVE"
    RESOLVE = "RESOLVE"
    GLASS = "GLASS"  # the approval of what was started behind broken glass


class ItemStatus(StrEnum):
    """Life of a replay item: one message in one plan."""

    DRAFT = "DRAFT"
    PLANNED = "PLANNED"
    BLOCKED = "BLOCKED"
    PENDING_APPROVAL = "PENDING_APPROVAL"
    APPROVED = "APPROVED"
    REJECTED = "REJECTED"
    EXPIRED = "EXPIRED"
    CLAIMED = "CLAIMED"
    SENDING = "SENDING"
    SENT = "SENT"
    SEND_UNKNOWN = "SEND_UNKNOWN"
    SEND_FAILED = "SEND_FAILED"
    PROCESSED_OK = "PROCESSED_OK"
    PROCESSED_IDEMPOTENT = "PROCESSED_IDEMPOTENT"
    BUSINESS_REJECTED = "BUSINESS_REJECTED"
    FAILED_AGAIN = "FAILED_AGAIN"
    VERIFIED = "VERIFIED"
    VERIFY_FAILED = "VERIFY_FAILED"
    COMPENSATED = "COMPENSATED"
    DISCARDED = "DISCARDED"
    STALE = "STALE"
    CANCELLED = "CANCELLED"


_I = ItemStatus
_OUTCOME: Final = frozenset(
    {_I.PROCESSED_OK, _I.PROCESSED_IDEMPOTENT, _I.BUSINESS_REJECTED, _I.FAILED_AGAIN}
)
_CHECKED: Final = frozenset({_I.VERIFIED, _I.VERIFY_FAILED})

# The same jumps stand in a table of the database, where a trigger checks them (0002_replay.sql).
ITEM_ALLOWED: Final[dict[ItemStatus, frozenset[ItemStatus]]] = {
    _I.DRAFT: frozenset({_I.PLANNED, _I.BLOCKED, _I.CANCELLED}),
    _I.PLANNED: frozenset({_I.PENDING_APPROVAL, _I.EXPIRED, _I.CANCELLED}),
    _I.PENDING_APPROVAL: frozenset({_I.APPROVED, _I.REJECTED, _I.EXPIRED, _I.CANCELLED}),
    _I.APPROVED: frozenset({_I.CLAIMED, _I.EXPIRED, _I.CANCELLED}),
    # COMPENSATED and DISCARDED: the item's disposition, under the same approval.
    _I.CLAIMED: frozenset({_I.SENDING, _I.STALE, _I.CANCELLED, _I.COMPENSATED, _I.DISCARDED}),
    _I.SENDING: frozenset({_I.SENT, _I.SEND_UNKNOWN, _I.SEND_FAILED}) | _OUTCOME,
    _I.SENT: frozenset({_I.SEND_UNKNOWN}) | _OUTCOME,
    _I.SEND_UNKNOWN: frozenset({_I.SENDING}) | _OUTCOME,
    _I.SEND_FAILED: frozenset({_I.SENDING, _I.FAILED_AGAIN}),
    _I.PROCESSED_OK: _CHECKED,
    _I.PROCESSED_IDEMPOTENT: _CHECKED,
    _I.BUSINESS_REJECTED: _CHECKED,
    # Their messages may be planned again: a new DRAFT in a new batch, for an approval is of one.
    _I.BLOCKED: frozenset(),
    _I.STALE: frozenset(),
    _I.FAILED_AGAIN: frozenset(),
    _I.REJECTED: frozenset(),
    _I.EXPIRED: frozenset(),
    _I.VERIFIED: frozenset(),
    _I.VERIFY_FAILED: frozenset(),
    _I.COMPENSATED: frozenset(),
    _I.DISCARDED: frozenset(),
    _I.CANCELLED: frozenset(),
}

ITEM_TERMINAL: Final[frozenset[ItemStatus]] = frozenset(
    status for status, onward in ITEM_ALLOWED.items() if not onward
)
ITEM_SUCCESS: Final[frozenset[ItemStatus]] = frozenset({_I.VERIFIED, _I.COMPENSATED, _I.DISCARDED})


class BatchStatus(StrEnum):
    """Life of a replay batch."""

    DRAFT = "DRAFT"
    PLANNED = "PLANNED"
    PENDING_APPROVAL = "PENDING_APPROVAL"
    APPROVED = "APPROVED"
    CANARY = "CANARY"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"  # by a person, or by the automatic brake
    THROTTLED = "THROTTLED"  # by the governor
    COMPLETED = "COMPLETED"
    COMPLETED_WITH_FAILURES = "COMPLETED_WITH_FAILURES"
    ABORTED = "ABORTED"
    REJECTED = "REJECTED"
    EXPIRED = "EXPIRED"


_B = BatchStatus
_ENDS: Final = frozenset({_B.COMPLETED, _B.COMPLETED_WITH_FAILURES, _B.ABORTED})

BATCH_ALLOWED: Final[dict[BatchStatus, frozenset[BatchStatus]]] = {
    _B.DRAFT: frozenset({_B.PLANNED, _B.ABORTED}),
    _B.PLANNED: frozenset({_B.PENDING_APPROVAL, _B.EXPIRED, _B.ABORTED}),
    _B.PENDING_APPROVAL: frozenset({_B.APPROVED, _B.REJECTED, _B.EXPIRED, _B.ABORTED}),
    _B.APPROVED: frozenset({_B.CANARY, _B.EXPIRED, _B.ABORTED}),
    _B.CANARY: frozenset({_B.RUNNING, _B.PAUSED}) | _ENDS,
    _B.RUNNING: frozenset({_B.PAUSED, _B.THROTTLED}) | _ENDS,
    _B.PAUSED: frozenset({_B.CANARY, _B.RUNNING, _B.ABORTED}),
    _B.THROTTLED: frozenset({_B.RUNNING, _B.PAUSED}) | _ENDS,
    _B.COMPLETED: frozenset(),
    _B.COMPLETED_WITH_FAILURES: frozenset(),
    _B.ABORTED: frozenset(),
    _B.REJECTED: frozenset(),
    _B.EXPIRED: frozenset(),
}

BATCH_ACTIVE: Final[frozenset[BatchStatus]] = frozenset(
    {_B.CANARY, _B.RUNNING, _B.PAUSED, _B.THROTTLED}
)
BATCH_SENDS: Final[frozenset[BatchStatus]] = BATCH_ACTIVE - {_B.PAUSED}
BATCH_ENDED: Final[frozenset[BatchStatus]] = frozenset(
    status for status, onward in BATCH_ALLOWED.items() if not onward
)

ITEM_IN_FLIGHT: Final = frozenset({_I.SENDING, _I.SENT, _I.SEND_UNKNOWN, _I.SEND_FAILED})
ITEM_PROCESSED: Final = _OUTCOME - {_I.FAILED_AGAIN}

"""The inbox: one row for each message that a group has dealt with, in the effect's own transaction.

The row stores the *outcome*, so that a redelivery can finish what an earlier one left open.
There is never a row for a quarantined message: its replay with the original id then passes.
All functions run inside the caller's transaction and use one statement each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import connection

from messaging.models import InboxOutcome

# Claim ids for a group; only new ones come back. Waits for the uncommitted row of a twin.
_CLAIM = """
INSERT INTO messaging_inbox
    (consumer_group, message_id, outcome, reason, reservation_id, order_id, delivery_attempt)
SELECT %s::text, * FROM unnest(
    %b::text[], %b::text[], %b::text[], %b::text[], %b::text[], %b::int[])
ON CONFLICT DO NOTHING
RETURNING message_id
"""

# Read what was done with messages; the two bounds let the planner leave out the other days.
_OUTCOMES = """
SELECT inbox.message_id, inbox.outcome, inbox.reason, inbox.reservation_id, inbox.order_id,
    inbox.created_at
FROM unnest(%b::text[]) AS wanted(message_id)
JOIN messaging_inbox AS inbox USING (message_id)
WHERE inbox.consumer_group = %s AND inbox.message_id >= %s AND inbox.message_id <= %s
"""

# Change the outcome of a message claimed in this very transaction.
_SET_OUTCOME = """
UPDATE messaging_inbox SET outcome = %s, reason = %s
WHERE consumer_group = %s AND message_id = %s
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class InboxEntry:
    """What to write for one message. `outcome` is one of `InboxOutcome`."""

    message_id: str
    outcome: str
    reason: str = ""
    reservation_id: str = ""
    order_id: str = ""
    delivery_attempt: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class InboxOutcomeRecord:
    """What was done with a message, and when (the database's clock)."""

    message_id: str
    outcome: InboxOutcome
    reason: str
    reservation_id: str
    order_id: str
    created_at: datetime


def claim(*, group: str, entries: Sequence[InboxEntry]) -> set[str]:
    """Write the rows of messages that this group has not dealt with yet.

    Doubles inside `entries` count once (the first). Rows are inserted in key order: two batches
    with the same ids in another order wait for each other instead of deadlocking. A twin's
    uncommitted row makes this wait until it ends (bounded by the caller's lock_timeout).

    Args:
        group: registry name of the consumer group.
        entries: one for each message.

    Returns:
        The ids that are new, that is: written by this call.

    Cost:
        One statement.
    """
    unique: dict[str, InboxEntry] = {}
    for entry in entries:
        unique.setdefault(entry.message_id, entry)
    if not unique:
        return set()
    rows = [unique[message_id] for message_id in sorted(unique)]
    with connection.cursor() as cursor:
        cursor.execute(
            _CLAIM,
            [
                group,
                [row.message_id for row in rows],
                [str(row.outcome) for row in rows],
                [row.reason for row in rows],
                [row.reservation_id for row in rows],
                [row.order_id for row in rows],
                [row.delivery_attempt for row in rows],
            ],
        )
        return {message_id for (message_id,) in cursor.fetchall()}


def outcomes(*, group: str, message_ids: Sequence[str]) -> dict[str, InboxOutcomeRecord]:
    """Read what this group did with messages; ids that it never dealt with are absent.

    Cost:
        One statement; only the days between the smallest and the largest id are read.
    """
    wanted = sorted(set(message_ids))
    if not wanted:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(_OUTCOMES, [wanted, group, wanted[0], wanted[-1]])
        return {
            row[0]: InboxOutcomeRecord(
                message_id=row[0],
                outcome=InboxOutcome(row[1]),
                reason=row[2],
                reservation_id=row[3],
                order_id=row[4],
                created_at=row[5],
            )
            for row in cursor.fetchall()
        }


def set_outcome(*, group: str, message_id: str, outcome: str, reason: str = "") -> None:
    """Change the outcome of a row that this transaction claimed (a reject found after the claim).

    Raises:
        LookupError: there is no such row, which is a bug of the caller.

    Cost:
        One statement.
    """
    with connection.cursor() as cursor:
        cursor.execute(_SET_OUTCOME, [str(outcome), reason, group, message_id])
        if cursor.rowcount != 1:
            raise LookupError(f"no inbox row of {group} for {message_id}")

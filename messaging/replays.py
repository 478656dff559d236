"""Replays of dead messages: their outbox rows, and what came back. Transport only.

A replay is an ordinary outbox row with `replay_id`, one attempt, and the original message id; user
properties say which replay it is, the how many-th, and for which group it is meant.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.db import connection

from messaging import outbox
from messaging.broker.base import ReceivedMessage
from messaging.outbox import OutboxMessage

PROPERTY_ID: Final = "replay_id"
PROPERTY_COUNT: Final = "replay_count"
PROPERTY_GROUP: Final = "replay_target_group"

# Rows written by this very transaction, found by their replay ids: their keys, to ask later.
_WRITTEN: Final = """
SELECT replay_id, id, created_at FROM messaging_outbox
WHERE event_id = ANY(%b::text[]) AND replay_id = ANY(%b::text[]) AND state = 0
    AND created_at > now() - interval '1 minute' AND created_at < now() + interval '1 day'
ORDER BY id
"""
_STATES: Final = """
SELECT o.id, o.state, o.attempts, o.last_error, o.sent_at
FROM unnest(%b::bigint[], %b::timestamptz[]) AS mine(id, created_at)
JOIN messaging_outbox o ON o.id = mine.id AND o.created_at = mine.created_at
"""
# Rows that died again: the newest replay that a consumer gave up on.
_DIED: Final = """
SELECT message_id, properties ->> 'replay_id', reason FROM messaging_quarantine
WHERE consumer_group = %s AND message_id = ANY(%b::text[]) AND status = 'OPEN'
    AND properties ->> 'replay_id' = ANY(%b::text[])
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class OutboxKey:
    """Where a replay's outbox row is."""

    id: int
    created_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class SendState:
    """What the sender says of a row: DUE, SENT, UNKNOWN (stored or not), FAILED (not stored)."""

    state: str
    attempts: int
    error: str
    sent_at: datetime | None


def properties(*, replay_id: str, replay_count: int, target_group: str) -> dict[str, str]:
    """Return the user properties of a replay; an empty group means all of the topic's groups."""
    made = {PROPERTY_ID: replay_id, PROPERTY_COUNT: str(replay_count)}
    return made | ({PROPERTY_GROUP: target_group} if target_group else {})


def is_for_another(message: ReceivedMessage, *, group: str) -> bool:
    """Tell whether a message is a replay that this group must ack without an effect."""
    return message.properties.get(PROPERTY_GROUP, group) != group


def add(messages: Sequence[OutboxMessage]) -> dict[str, OutboxKey]:
    """Store replays inside the caller's transaction; returns each row's key by replay id.

    Cost: two statements.
    """
    outbox.add(messages)
    with connection.cursor() as cursor:
        cursor.execute(
            _WRITTEN,
            [[message.event_id for message in messages], [m.replay_id for m in messages]],
        )
        return {row[0]: OutboxKey(id=row[1], created_at=row[2]) for row in cursor.fetchall()}


def states(keys: Sequence[OutboxKey]) -> dict[int, SendState]:
    """Return what became of rows, by id; a row whose day was dropped is absent. One statement."""
    if not keys:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(_STATES, [[key.id for key in keys], [key.created_at for key in keys]])
        return {
            row[0]: SendState(
                state=_state(row[1], row[3]), attempts=row[2], error=row[3], sent_at=row[4]
            )
            for row in cursor.fetchall()
        }


def died_again(*, group: str, replays: Mapping[str, str]) -> dict[str, str]:
    """Return the replays that a consumer, or the broker, gave up on: replay id → reason.

    Args:
        group: whose quarantine rows.
        replays: message id → replay id.

    Cost: one statement on the index of open rows.
    """
    if not replays:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(_DIED, [group, sorted(replays), sorted(replays.values())])
        return {row[1]: row[2] for row in cursor.fetchall()}


def _state(state: int, error: str) -> str:
    if state == outbox.STATE_DUE:
        return "DUE"
    if state == outbox.STATE_SENT:
        return "SENT"
    return "UNKNOWN" if "UNKNOWN" in error.split(" ")[:2] else "FAILED"

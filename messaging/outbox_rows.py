"""The sender's statements on the outbox: claim, and the three fenced ends of a claim.

All lease and due arithmetic is on the database's clock. "Fenced" means: only while the row still
carries our token. Rows are found by (id, created_at), which is the key and names the partition.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec
from django.db import connection, transaction

from messaging import quarantine
from messaging.facts import read_facts
from messaging.models import QuarantineSource
from messaging.quarantine import QuarantineEntry

# Lease due rows of a lane to this token, oldest first. MATERIALIZED: the limit binds the UPDATE.
# The bound on created_at lets the planner leave out the days to come.
_CLAIM: Final = """
WITH due AS MATERIALIZED (
    SELECT id, created_at FROM messaging_outbox
    WHERE state = 0 AND lane = %s AND available_at <= now() AND topic <> ALL(%b::text[])
        AND created_at < now() + interval '1 day'
    ORDER BY available_at, id
    LIMIT %s
    FOR UPDATE SKIP LOCKED
)
UPDATE messaging_outbox AS o SET
    claim_token = %s, attempts = attempts + 1,
    available_at = clock_timestamp() + %s * interval '1 second'
FROM due WHERE o.id = due.id AND o.created_at = due.created_at
    AND o.created_at < now() + interval '1 day'
RETURNING o.id, o.created_at, o.topic, o.tag, o.event_id, o.keys, o.payload, o.properties,
    o.deliver_at_ms, o.attempts, o.max_attempts, o.replay_id
"""

# Whether a lane fills fast now, and how long its oldest row has been due; on the index of due rows.
_FLOW: Final = """
SELECT (
    SELECT count(*) FROM (
        SELECT 1 FROM messaging_outbox
        WHERE state = 0 AND lane = %s AND available_at > now() - interval '1 second'
            AND available_at <= now() AND created_at < now() + interval '1 day'
        LIMIT %s) AS fresh
), (
    SELECT coalesce(extract(epoch FROM now() - min(available_at)), 0)::float8
    FROM messaging_outbox
    WHERE state = 0 AND lane = %s AND available_at <= now()
        AND created_at < now() + interval '1 day'
)
"""

# Published for certain.
_SENT: Final = """
UPDATE messaging_outbox AS o SET state = 1, sent_at = clock_timestamp(), last_error = ''
FROM unnest(%b::bigint[], %b::timestamptz[]) AS mine(id, created_at)
WHERE o.id = mine.id AND o.created_at = mine.created_at
    AND o.created_at < now() + interval '1 day' AND o.claim_token = %s AND o.state = 0
"""

# To be tried again later; `uncount` takes back the attempt of a row that was not sent at all.
_LATER: Final = """
UPDATE messaging_outbox AS o SET
    claim_token = NULL, last_error = mine.error, attempts = o.attempts - mine.uncount,
    available_at = clock_timestamp() + mine.delay_ms * interval '1 millisecond'
FROM unnest(%b::bigint[], %b::timestamptz[], %b::int[], %b::text[], %b::int[])
    AS mine(id, created_at, delay_ms, error, uncount)
WHERE o.id = mine.id AND o.created_at = mine.created_at AND o.claim_token = %s AND o.state = 0
"""

# Never to be tried again: its quarantine row is in the same transaction.
_POISON: Final = """
UPDATE messaging_outbox AS o SET state = 2, last_error = mine.error
FROM unnest(%b::bigint[], %b::timestamptz[], %b::text[]) AS mine(id, created_at, error)
WHERE o.id = mine.id AND o.created_at = mine.created_at AND o.claim_token = %s AND o.state = 0
RETURNING o.id
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaimedRow:
    """An outbox row under our lease; `attempts` counts this one."""

    id: int
    created_at: datetime
    topic: str
    tag: str
    event_id: str
    keys: str
    payload: str
    properties: dict[str, str]
    deliver_at_ms: int | None
    attempts: int
    max_attempts: int
    replay_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneFlow:
    """How a lane fills: rows that became due within the last second, the age of the oldest."""

    fresh: int
    oldest_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Later:
    """A row to try again in `delay_ms`; `sent` False means that this attempt does not count."""

    row: ClaimedRow
    delay_ms: int
    error: str
    sent: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Poison:
    """A row that is given up, with a stable code and the broker's words."""

    row: ClaimedRow
    reason: str
    error: str


def claim(
    *, lane: int, limit: int, lease_s: float, without: Sequence[str], token: uuid.UUID
) -> list[ClaimedRow]:
    """Lease up to `limit` due rows of a lane, oldest first, skipping rows of other senders.

    Args:
        lane: one of the lanes.
        limit: most rows.
        lease_s: seconds until others may take them.
        without: topics that nothing may be sent to now.
        token: names this claim.

    Cost:
        One autocommit statement.
    """
    with connection.cursor() as cursor:
        cursor.execute(_CLAIM, [lane, list(without), limit, token, lease_s])
        rows = [_row(values) for values in cursor.fetchall()]
    rows.sort(key=lambda row: row.id)
    return rows


def lane_flow(*, lane: int, most: int) -> LaneFlow:
    """Return how a lane fills now.

    Args:
        lane: one of the lanes.
        most: counts no further than this.

    Cost:
        One statement.
    """
    with connection.cursor() as cursor:
        cursor.execute(_FLOW, [lane, most, lane])
        fresh, oldest_s = cursor.fetchone()
    return LaneFlow(fresh=fresh, oldest_s=oldest_s)


def mark_sent(rows: Sequence[ClaimedRow], *, token: uuid.UUID) -> int:
    """Mark rows as published; returns how many were still ours. One statement."""
    with connection.cursor() as cursor:
        cursor.execute(_SENT, [*_keys(rows), token])
        return int(cursor.rowcount)


def mark_later(items: Sequence[Later], *, token: uuid.UUID) -> int:
    """Give rows back for a later attempt; returns how many were still ours. One statement."""
    with connection.cursor() as cursor:
        cursor.execute(
            _LATER,
            [
                *_keys([item.row for item in items]),
                [item.delay_ms for item in items],
                [item.error[:500] for item in items],
                [0 if item.sent else 1 for item in items],
                token,
            ],
        )
        return int(cursor.rowcount)


def mark_poison(items: Sequence[Poison], *, token: uuid.UUID) -> int:
    """Give rows up: state and quarantine rows in one transaction; returns how many were ours."""
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute(
            _POISON,
            [
                *_keys([item.row for item in items]),
                [f"{item.reason} {item.error}"[:500] for item in items],
                token,
            ],
        )
        ours = {row_id for (row_id,) in cursor.fetchall()}
        quarantine.store_in_transaction(
            # A replay reports back to its batch, which decides; it is in quarantine already.
            [_entry(item) for item in items if item.row.id in ours and not item.row.replay_id]
        )
    return len(ours)


def _keys(rows: Sequence[ClaimedRow]) -> list[list[Any]]:
    return [[row.id for row in rows], [row.created_at for row in rows]]


def _row(values: Sequence[Any]) -> ClaimedRow:
    return ClaimedRow(
        id=values[0],
        created_at=values[1],
        topic=values[2],
        tag=values[3],
        event_id=values[4],
        keys=values[5],
        payload=values[6],
        properties=_properties(values[7]),
        deliver_at_ms=values[8],
        attempts=values[9],
        max_attempts=values[10],
        replay_id=values[11],
    )


def _properties(value: str | dict[str, str]) -> dict[str, str]:
    """Read a jsonb value, which a raw cursor hands over as text."""
    found = msgspec.json.decode(value) if isinstance(value, str) else value
    return {str(name): str(text) for name, text in found.items()} if isinstance(found, dict) else {}


def _entry(item: Poison) -> QuarantineEntry:
    row = item.row
    body = row.payload.encode()
    return QuarantineEntry(
        group=quarantine.OUTBOX_GROUP,
        message_id=row.event_id,
        source=QuarantineSource.OUTBOX,
        topic=row.topic,
        tag=row.tag,
        keys=row.keys,
        properties=row.properties,
        body=body,
        reason=item.reason,
        error=item.error,
        delivery_attempt=row.attempts,
        facts=read_facts(body, row.keys.split()),
    )

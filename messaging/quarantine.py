"""Quarantine: messages that no loop may handle any more, until a person has dealt with them.

One table for our own rows and for the broker's dead messages. Storing is idempotent (the same
message again raises `occurrences`), must never fail because of what is *in* the message, and is
committed before the message is acked. An OPEN row of the order-create group *holds* its
reservation.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec
from django.db import connection, transaction

from messaging.broker.base import ReceivedMessage
from messaging.facts import NO_FACTS, BodyFacts, printable, read_facts
from messaging.models import QuarantineSource

# Store rows; the same message again is one more occurrence, and opens a resolved row again.
_STORE: Final = """
INSERT INTO messaging_quarantine
    (consumer_group, message_id, source, status, topic, tag, keys, properties, body, body_sha256,
     reason, error, delivery_attempt, occurrences, reservation_id, activity_id, sku_id, user_id,
     quantity, valid_until, resolution)
SELECT consumer_group, message_id, source, 'OPEN', topic, tag, keys, properties::jsonb, body,
    body_sha256, reason, error, delivery_attempt, 1, reservation_id, activity_id, sku_id, user_id,
    quantity, valid_until, ''
FROM unnest(%b::text[], %b::text[], %b::text[], %b::text[], %b::text[], %b::text[], %b::text[],
    %b::bytea[], %b::text[], %b::text[], %b::text[], %b::int[], %b::text[], %b::bigint[],
    %b::bigint[], %b::text[], %b::int[], %b::timestamptz[])
    AS row(consumer_group, message_id, source, topic, tag, keys, properties, body, body_sha256,
        reason, error, delivery_attempt, reservation_id, activity_id, sku_id, user_id, quantity,
        valid_until)
ON CONFLICT (consumer_group, message_id, body_sha256) DO UPDATE SET
    occurrences = messaging_quarantine.occurrences + 1,
    last_at = now(),
    reason = excluded.reason,
    error = excluded.error,
    properties = messaging_quarantine.properties || excluded.properties,  -- the newest replay's
    delivery_attempt = greatest(messaging_quarantine.delivery_attempt, excluded.delivery_attempt),
    status = 'OPEN',
    resolved_at = NULL,
    resolution = ''
"""

# Ids that have an OPEN row of this group.
_HELD: Final = """
SELECT message_id FROM messaging_quarantine
WHERE consumer_group = %s AND message_id = ANY(%b::text[]) AND status = 'OPEN'
ORDER BY message_id
"""

# One more copy of a message whose row is still open: counted, nothing else changes.
_SEEN_AGAIN: Final = """
UPDATE messaging_quarantine SET occurrences = occurrences + 1, last_at = now()
WHERE consumer_group = %s AND message_id = ANY(%b::text[]) AND status = 'OPEN'
"""

# Close the OPEN rows of messages that have an outcome now.
_RESOLVE: Final = """
UPDATE messaging_quarantine SET status = 'RESOLVED', resolved_at = now(), resolution = %s
WHERE consumer_group = %s AND message_id = ANY(%b::text[]) AND status = 'OPEN'
"""

DEAD_LETTER: Final = QuarantineSource.DLQ
OUTBOX_GROUP: Final = "OUTBOX"  # stands in the group's place for rows that were never sent


@dataclass(frozen=True, kw_only=True, slots=True)
class QuarantineEntry:
    """One message to store. Build it with `entry_of` for a received one.

    `facts` are the reservation's columns, read leniently from the body.
    """

    group: str
    message_id: str
    source: QuarantineSource
    topic: str
    tag: str
    keys: str
    properties: dict[str, str]
    body: bytes
    reason: str
    error: str
    delivery_attempt: int
    facts: BodyFacts


def entry_of(
    message: ReceivedMessage,
    *,
    group: str,
    reason: str,
    error: str = "",
    source: QuarantineSource = QuarantineSource.CONSUMER,
    facts: BodyFacts | None = None,
) -> QuarantineEntry:
    """Describe a received message for the quarantine.

    Args:
        message: the delivery.
        group: registry name of the group that gives up on it.
        reason: stable code.
        error: what went wrong, without the message's data.
        source: CONSUMER, or DLQ for the broker's dead letters.
        facts: the reservation's columns when the caller knows more than the body tells.
    """
    return QuarantineEntry(
        group=group,
        message_id=message.message_id,
        source=source,
        topic=message.topic,
        tag=message.tag,
        keys=" ".join(message.keys),
        properties=dict(message.properties),
        body=message.body,
        reason=reason,
        error=error,
        delivery_attempt=message.delivery_attempt,
        facts=facts or read_facts(message.body, message.keys),
    )


def own_entry(
    *, group: str, message_id: str, reason: str, keys: Sequence[str], body: bytes
) -> QuarantineEntry:
    """Describe something of our own that a person must look at; it was never a broker's message.

    Args:
        group: stands in the group's place, as OUTBOX does.
        message_id: its id, at most 64 characters.
        reason: stable code.
        keys: ids to search by.
        body: what is known about it.
    """
    return QuarantineEntry(
        group=group,
        message_id=message_id,
        source=QuarantineSource.CONSUMER,
        topic="",
        tag="",
        keys=" ".join(keys),
        properties={},
        body=body,
        reason=reason,
        error="",
        delivery_attempt=1,
        facts=NO_FACTS,
    )


def store(entries: Sequence[QuarantineEntry]) -> None:
    """Store messages in a transaction of its own; committed when this returns, so ack afterwards.

    Raises:
        django.db.Error: nothing was stored; the caller must not ack.

    Cost:
        One transaction, one statement.
    """
    with transaction.atomic(durable=True):
        store_in_transaction(entries)


def store_in_transaction(entries: Sequence[QuarantineEntry]) -> None:
    """Store messages inside the caller's transaction (the sender, the DLQ drain)."""
    unique = {(row.group, _clip(row.message_id, 64), _digest(row.body)): row for row in entries}
    if not unique:
        return
    keys = sorted(unique)
    rows = [unique[key] for key in keys]
    facts = [row.facts for row in rows]
    with connection.cursor() as cursor:
        cursor.execute(
            _STORE,
            [
                [group for group, _, _ in keys],
                [message_id for _, message_id, _ in keys],
                [str(row.source) for row in rows],
                [_clip(row.topic, 120) for row in rows],
                [_clip(row.tag, 64) for row in rows],
                [printable(row.keys) for row in rows],
                [_properties_text(row.properties) for row in rows],
                [row.body for row in rows],
                [digest for _, _, digest in keys],
                [_clip(row.reason, 64) for row in rows],
                [_clip(row.error, 2000) for row in rows],
                [row.delivery_attempt for row in rows],
                [fact.reservation_id for fact in facts],
                [fact.activity_id for fact in facts],
                [fact.sku_id for fact in facts],
                [fact.user_id for fact in facts],
                [fact.quantity for fact in facts],
                [fact.valid_until for fact in facts],
            ],
        )


def held(*, group: str, message_ids: Sequence[str], lock: bool = False) -> set[str]:
    """Return the ids that have an OPEN row of this group.

    Args:
        group: registry name.
        message_ids: ids to look up.
        lock: inside a rejecting transaction: FOR SHARE, so that nobody resolves a row meanwhile.

    Cost:
        One statement on the partial index of open rows.
    """
    if not message_ids:
        return set()
    with connection.cursor() as cursor:
        cursor.execute(_HELD + ("FOR SHARE" if lock else ""), [group, sorted(set(message_ids))])
        return {message_id for (message_id,) in cursor.fetchall()}


def seen_again(*, group: str, message_ids: Sequence[str]) -> int:
    """Count one more occurrence for each OPEN row, inside the caller's transaction."""
    if not message_ids:
        return 0
    with connection.cursor() as cursor:
        cursor.execute(_SEEN_AGAIN, [group, sorted(set(message_ids))])
        return int(cursor.rowcount)


def resolve(*, group: str, message_ids: Sequence[str], resolution: str) -> int:
    """Close the OPEN rows of messages, inside the caller's transaction.

    Args:
        group: registry name.
        message_ids: messages whose inbox has an outcome now, or that a ticket ended.
        resolution: stable code, such as ORDERED or COMPENSATED.

    Returns:
        How many rows were closed.

    Cost:
        One statement.
    """
    if not message_ids:
        return 0
    with connection.cursor() as cursor:
        cursor.execute(_RESOLVE, [resolution, group, sorted(set(message_ids))])
        return int(cursor.rowcount)


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldReservation:
    """An OPEN row that holds a reservation. Everything that the body did not tell is None."""

    message_id: str
    reservation_id: str
    activity_id: int | None
    sku_id: int | None
    user_id: str | None
    quantity: int | None
    valid_until: datetime | None


# Reservations of a sale that OPEN rows hold, one row for each.
_HELD_RESERVATIONS: Final = """
SELECT DISTINCT ON (reservation_id) message_id, reservation_id, activity_id, sku_id, user_id,
    quantity, valid_until
FROM messaging_quarantine
WHERE consumer_group = %s AND status = 'OPEN' AND reservation_id IS NOT NULL AND activity_id = %s
ORDER BY reservation_id, first_at
"""


def held_reservations(*, group: str, activity_id: int) -> list[HeldReservation]:
    """Return the reservations of a sale that OPEN rows of this group hold. One statement."""
    with connection.cursor() as cursor:
        cursor.execute(_HELD_RESERVATIONS, [group, activity_id])
        return [
            HeldReservation(
                message_id=row[0],
                reservation_id=row[1],
                activity_id=row[2],
                sku_id=row[3],
                user_id=row[4],
                quantity=row[5],
                valid_until=row[6],
            )
            for row in cursor.fetchall()
        ]


# Without the rest of the rows, of many sales at a time; by the partial index of open rows.
_HELD_IDS: Final = """
SELECT DISTINCT activity_id, reservation_id FROM messaging_quarantine
 WHERE consumer_group = %s AND status = 'OPEN' AND reservation_id IS NOT NULL
   AND activity_id = ANY(%s::bigint[])
 LIMIT %s
"""


def held_ids(*, group: str, activity_ids: Sequence[int], most: int) -> list[tuple[int, str]]:
    """Return (activity, reservation) of what OPEN rows of this group hold. One statement.

    Args:
        group: consumer group of the rows.
        activity_ids: the sales.
        most: at most so many.
    """
    with connection.cursor() as cursor:
        cursor.execute(_HELD_IDS, [group, list(activity_ids), most])
        return list(cursor.fetchall())


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _clip(text: str, length: int) -> str:
    return printable(text)[:length]


def _properties_text(properties: dict[str, str]) -> str:
    clean = {printable(key): printable(value) for key, value in properties.items()}
    return msgspec.json.encode(clean).decode()

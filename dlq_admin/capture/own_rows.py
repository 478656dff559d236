"""Our own quarantine rows into the desk: new ones at once, repeated deaths a little later."""

import json
from typing import Any, Final

from django.db import connection, transaction

from dlq_admin.capture.records import Death
from dlq_admin.capture.store import lock_group, store_deaths, unknown
from messaging.facts import BodyFacts

PAGE: Final = 200

_ROWS: Final = """
SELECT q.id, q.consumer_group, q.message_id, q.source, q.occurrences, q.topic, q.tag, q.keys,
       q.properties, q.body, q.reason, q.error, q.delivery_attempt, q.last_at, q.reservation_id,
       q.activity_id, q.sku_id, q.user_id, q.quantity, q.valid_until
  FROM messaging_quarantine q
  LEFT JOIN dlq_message m
    ON m.message_id = q.message_id AND m.consumer_group = q.consumer_group
"""
_NEW: Final = (
    _ROWS
    + """
 WHERE q.id > %s AND q.status = 'OPEN' AND m.id IS NULL
 ORDER BY q.id LIMIT %s
"""
)
_MISSED: Final = (
    _ROWS
    + """
 WHERE q.status = 'OPEN' AND (m.id IS NULL OR m.status = 'CLOSED' OR m.last_seen_at < q.last_at)
 ORDER BY q.id LIMIT %s
"""
)


def capture_new(*, after: int) -> tuple[int, int]:
    """Take open rows with a larger key that the desk does not know.

    Returns:
        How many rows were taken, and the key to go on after.

    Cost: one statement on the primary key, then as `store_deaths`. A row that commits after one
    with a larger key is left to `capture_missed`.
    """
    rows = _fetch(_NEW, after, PAGE)
    _take(rows)
    return len(rows), rows[-1][0] if rows else after


def capture_missed() -> int:
    """Take open rows that the desk does not know, or that died again; returns how many.

    Cost: one statement over the open rows, then as `store_deaths`.
    """
    rows = _fetch(_MISSED, PAGE)
    _take(rows)
    return len(rows)


def _take(rows: list[tuple[Any, ...]]) -> None:
    deaths = [_death(row) for row in rows]
    for group in sorted({death.group for death in deaths}):
        with transaction.atomic(durable=True):
            lock_group(group)
            new = unknown(group, [death for death in deaths if death.group == group])
            store_deaths(group, new)


def _death(row: tuple[Any, ...]) -> Death:
    (pk, group, message_id, source, occurrences, topic, tag, keys, properties, body, reason, error,
     attempt, last_at, *facts) = row  # fmt: skip
    names = ("reservation_id", "activity_id", "sku_id", "user_id", "quantity", "valid_until")
    return Death(
        group=group,
        message_id=message_id,
        source=source,
        # Each further occurrence raises the count: a death of its own.
        origin=f"quarantine:{pk}:{occurrences}",
        topic=topic,
        tag=tag,
        keys=keys,
        properties=json.loads(properties) if isinstance(properties, str) else properties,
        body=bytes(body),
        error_class=reason,
        error=error,
        delivery_attempt=attempt,
        died_at=last_at,
        facts=BodyFacts(**dict(zip(names, facts, strict=True))),
    )


def _fetch(sql: str, *params: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall())

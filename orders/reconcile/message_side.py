"""Outbox against inbox: what is not sent, and what was sent but never dealt with.

Published but not consumed: a message older than max(10 min, 3 x the group's lag) that a group with
an inbox has no row of, nor an item. It is sent once more under its own id (every group that reads
it is idempotent); when that does not help either, it is a ticket.
"""

import json
from typing import Any, Final

from django.conf import settings
from django.db import transaction

from messaging import outbox
from messaging.outbox import OutboxMessage
from messaging.selectors import group_lag
from messaging.topology import CG_ORDER_CREATE, GroupSpec, enabled_groups
from orders.database import allow_long_reads, fetch
from orders.reconcile.difference import Difference, Outcome, Scope

UNCONSUMED: Final = "published_not_consumed"
UNCONSUMED_AGAIN: Final = "not_consumed_after_replay"
OUTBOX_STUCK: Final = "outbox_stuck"
REPLAY_ID: Final = "unconsumed"
LEAST_AGE_S: Final = 600
BATCH: Final = 200

_UNCONSUMED: Final = """
SELECT o.event_id, max(o.keys), bool_or(o.replay_id = %s)
  FROM messaging_outbox o
 WHERE o.topic = %s AND o.tag = ANY(%b::text[])
   AND o.created_at > now() - %s * interval '1 day'
   AND NOT EXISTS (
         SELECT 1 FROM messaging_inbox i
          WHERE i.consumer_group = %s AND i.message_id = o.event_id)
   AND NOT EXISTS (
         SELECT 1 FROM messaging_quarantine q
          WHERE q.consumer_group = %s AND q.message_id = o.event_id)
 GROUP BY o.event_id
HAVING bool_and(o.state <> 0)
   AND max(o.sent_at) < clock_timestamp() - %s * interval '1 second'
 ORDER BY o.event_id LIMIT %s
"""
_STUCK: Final = """
SELECT topic, count(*), min(last_error) FROM messaging_outbox
 WHERE state = 0 AND created_at < clock_timestamp() - %s * interval '1 second'
 GROUP BY topic ORDER BY topic
"""
_ROW: Final = """
SELECT topic, tag, keys, payload, properties, lane FROM messaging_outbox
 WHERE event_id = %s ORDER BY id LIMIT 1 FOR NO KEY UPDATE
"""
_REPLAYED: Final = "SELECT 1 FROM messaging_outbox WHERE event_id = %s AND replay_id = %s"


def find(scope: Scope) -> list[Difference]:
    """Look at all messages; a run over one sale leaves them out.

    Cost: for each group with an inbox two statements, one of which reads the outbox's horizon.
    """
    if scope.activity_id is not None:
        return []
    with transaction.atomic(durable=True):
        allow_long_reads()
        return _find()


def _find() -> list[Difference]:
    found = [
        Difference(
            kind=OUTBOX_STUCK,
            activity_id=None,
            subject=topic,
            detail=f"{count} rows older than {LEAST_AGE_S} s are not sent: {error}",
        )
        for topic, count, error in fetch(_STUCK, (LEAST_AGE_S,))
    ]
    for group in enabled_groups():
        # Creation messages come from the gate, not from the outbox: the sweep looks after them.
        if group.has_inbox and group.name != CG_ORDER_CREATE:
            found += _unconsumed(group)
    return found


def replay(difference: Difference) -> Outcome:
    """Send a message once more: the same bytes under the same id."""
    event_id = difference.facts["event_id"]
    rows = fetch(_ROW, (event_id,))
    if not rows:
        return Outcome.GONE
    if fetch(_REPLAYED, (event_id, REPLAY_ID)):
        return Outcome.GONE  # for another group, or by another run
    topic, tag, keys, payload, properties, lane = rows[0]
    outbox.add(
        [
            OutboxMessage(
                topic=topic,
                tag=tag,
                event_id=event_id,
                keys=keys.split(),
                body=payload.encode(),
                lane=lane,
                properties=_properties(properties),
                replay_id=REPLAY_ID,
            )
        ]
    )
    return Outcome.REPAIRED


def _unconsumed(group: GroupSpec) -> list[Difference]:
    lag = group_lag(group.name)
    if lag.members == 0:
        return []  # nobody consumes: it piles up, which is another alert
    age_s = max(LEAST_AGE_S, 3 * lag.lag_s)
    rows = fetch(
        _UNCONSUMED,
        (
            REPLAY_ID,
            group.topic,
            list(group.tags),
            settings.SECKILL_OUTBOX_DAYS - 1,
            group.name,
            group.name,
            age_s,
            BATCH,
        ),
    )
    return [
        Difference(
            kind=UNCONSUMED_AGAIN if replayed else UNCONSUMED,
            activity_id=None,
            subject=f"{event_id} {group.name}",
            detail=f"sent {age_s:.0f} s ago or earlier, keys {keys}",
            facts={"event_id": event_id},
        )
        for event_id, keys, replayed in rows
    ]


def _properties(value: Any) -> dict[str, str]:
    found = json.loads(value) if isinstance(value, str) else value
    return {str(name): str(text) for name, text in found.items()}

"""The outbox: messages written in the transaction that justifies them, published by the sender.

The body is stored as the text it will be sent as, so that every attempt sends the same bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
from django.db import connection

LANE_COMPENSATE: Final = 0
LANE_EVENTS: Final = 1
LANE_TIMEOUTS: Final = 2
LANES: Final = (LANE_COMPENSATE, LANE_EVENTS, LANE_TIMEOUTS)

STATE_DUE: Final = 0
STATE_SENT: Final = 1
STATE_QUARANTINED: Final = 2

# Store messages to publish, due at once or when they were held back for.
_ADD = """
INSERT INTO messaging_outbox
    (topic, tag, event_id, keys, payload, properties, lane, deliver_at_ms, max_attempts, replay_id,
     available_at)
SELECT topic, tag, event_id, keys, payload, properties::jsonb, lane, deliver_at_ms, max_attempts,
    replay_id, now() + hold_back_ms * interval '1 millisecond'
FROM unnest(%b::text[], %b::text[], %b::text[], %b::text[], %b::text[], %b::text[], %b::smallint[],
    %b::bigint[], %b::int[], %b::text[], %b::int[])
    AS row(topic, tag, event_id, keys, payload, properties, lane, deliver_at_ms, max_attempts,
        replay_id, hold_back_ms)
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class OutboxMessage:
    """A message to publish.

    Args:
        topic: short name of the registry.
        tag: event kind, one of the topic's tags.
        event_id: the message id (`evt_…`), kept on every attempt.
        keys: message keys for people to search by.
        body: serialised UTF-8 JSON.
        lane: LANE_COMPENSATE, LANE_EVENTS or LANE_TIMEOUTS.
        deliver_at_ms: epoch ms, for DELAY topics only.
        properties: user properties that do not change between attempts (traceparent, …).
        max_attempts: after so many sends the row goes to quarantine (a replay: 1).
        replay_id: the replay that sends this, else empty.
        hold_back_ms: the first send is not before this time from now.
    """

    topic: str
    tag: str
    event_id: str
    keys: Sequence[str]
    body: bytes
    lane: int
    deliver_at_ms: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    max_attempts: int = 20
    replay_id: str = ""
    hold_back_ms: int = 0


def add(messages: Sequence[OutboxMessage]) -> None:
    """Store messages inside the caller's transaction.

    Raises:
        UnicodeDecodeError: a body is not UTF-8 (a bug of the caller).

    Cost:
        One statement for all of them; no hot row.
    """
    if not messages:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            _ADD,
            [
                [message.topic for message in messages],
                [message.tag for message in messages],
                [message.event_id for message in messages],
                [" ".join(message.keys) for message in messages],
                [message.body.decode() for message in messages],
                [_properties_text(message.properties) for message in messages],
                [message.lane for message in messages],
                [message.deliver_at_ms for message in messages],
                [message.max_attempts for message in messages],
                [message.replay_id for message in messages],
                [message.hold_back_ms for message in messages],
            ],
        )


def _properties_text(properties: Mapping[str, str]) -> str:
    return msgspec.json.encode(dict(properties)).decode() if properties else "{}"

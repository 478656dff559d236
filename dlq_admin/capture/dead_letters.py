"""From one `%DLQ%` topic into the desk: quarantine row and evidence committed, then acked."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from django.db import transaction

import faultpoint
from dlq_admin.capture.records import Death
from dlq_admin.capture.store import lock_group, store_deaths, unknown
from messaging import quarantine
from messaging.broker.base import ReceivedMessage
from messaging.facts import read_facts
from messaging.quarantine import DEAD_LETTER as SOURCE
from messaging.quarantine import entry_of
from messaging.topology import group_spec
from orders.dead_letters import body_error

DEAD_LETTER: Final = "DEAD_LETTER"  # readable: it killed its process, or nobody acked it


def capture(group: str, messages: Sequence[ReceivedMessage]) -> int:
    """Store dead letters of a group; when this returns they are committed and may be acked.

    Args:
        group: registry name of the group that they died in.
        messages: received from its dead letter topic.

    Returns:
        How many need a person.

    Raises:
        django.db.Error: nothing was stored; the caller must not ack.

    Cost: one transaction, about fifteen statements for any number.
    """
    if not messages:
        return 0
    with transaction.atomic(durable=True):
        lock_group(group)
        deaths = {_origin(m): _death(group, m) for m in messages}
        new = unknown(group, list(deaths.values()))
        fresh = {death.origin for death in new}
        quarantine.store_in_transaction(
            [
                entry_of(m, group=group, reason=deaths[_origin(m)].error_class, source=SOURCE)
                for m in messages
                if _origin(m) in fresh
            ]
        )
        waiting = store_deaths(group, new)
    faultpoint.hit("drain.after_store")
    return waiting


def _death(group: str, message: ReceivedMessage) -> Death:
    reason = body_error(group=group, body=message.body)
    return Death(
        group=group,
        message_id=message.message_id[:64],
        source=SOURCE.value,
        origin=_origin(message),
        topic=message.properties.get("origin_topic", "") or group_spec(group).topic,
        tag=message.tag,
        keys=" ".join(message.keys),
        properties=dict(message.properties),
        body=message.body,
        error_class=reason or DEAD_LETTER,
        error="" if reason else "delivered to its limit, never acked",
        delivery_attempt=message.delivery_attempt,
        died_at=_instant(message.stored_at_ms),
        facts=read_facts(message.body, message.keys),
        broker_message_id=message.store_host,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
    )


def _origin(message: ReceivedMessage) -> str:
    """Name the send that died. A copy's place will not do: it changes with each redelivery."""
    parts = (
        str(message.born_at_ms or message.stored_at_ms),
        message.properties.get("send_attempt", ""),
        message.properties.get("replay_id", ""),
    )
    return f"{message.message_id}:{':'.join(parts)}"[:160]


def _instant(epoch_ms: int) -> datetime:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC) if epoch_ms else datetime.now(UTC)

"""What every effect group shares: decode, claim in the group's own inbox, write, commit, ack.

Inbox row and effect are one transaction, so an event has its effect once in each group, however
often it is delivered. A group that fails or is slow holds its own messages only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import msgspec
from django.db import transaction

import faultpoint
from messaging import inbox
from messaging.broker.base import ReceivedMessage
from messaging.disposition import DONE, DUPLICATE, Decision
from messaging.inbox import InboxEntry
from orders.contracts import OrderEvent, order_event_decoder
from orders.database import begin, execute
from orders.handlers import DecodingHandler

# The business's own key: a fact that comes under another message id has no second effect either.
_INSERT: Final = """
INSERT INTO orders_effect (consumer_group, rule_version, source_type, source_id, event_id,
    activity_id, user_id, value, unit, detail)
SELECT %s, %s, source_type, source_id, event_id, activity_id, user_id, value, unit, detail::jsonb
FROM unnest(%b::text[], %b::text[], %b::text[], %b::bigint[], %b::text[], %b::bigint[],
    %b::text[], %b::text[])
    AS row(source_type, source_id, event_id, activity_id, user_id, value, unit, detail)
ON CONFLICT DO NOTHING
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """What an event is worth to a group. `value` is signed; `unit` a currency (cents) or a word."""

    value: int
    unit: str
    detail: Mapping[str, str | int | list[str]] = field(default_factory=dict)


class EffectGroup:
    """One group. A file in this folder defines a subclass and `EFFECT`, an instance of it.

    Raise `rule_version` when a rule changes and facts of the past shall be counted anew.
    """

    name: str
    rule_version = 1

    def effect_of(self, event: OrderEvent) -> Effect | None:
        """Return the effect of one event, None for none. Pure."""
        raise NotImplementedError

    def write(self, events: Sequence[OrderEvent], *, now: datetime) -> None:
        """Write the effects of new events inside the running transaction, set-based."""
        rows = sorted(
            ((event, effect) for event in events if (effect := self.effect_of(event)) is not None),
            key=lambda row: (row[0].event_type, row[0].order_id),
        )
        if not rows:
            return
        execute(
            _INSERT,
            (
                self.name,
                self.rule_version,
                [event.event_type for event, _ in rows],
                [event.order_id for event, _ in rows],
                [event.event_id for event, _ in rows],
                [event.activity_id for event, _ in rows],
                [event.user_id for event, _ in rows],
                [effect.value for _, effect in rows],
                [effect.unit for _, effect in rows],
                [msgspec.json.encode(effect.detail).decode() for _, effect in rows],
            ),
        )


class EffectHandler(DecodingHandler[OrderEvent]):
    """ORDER_EVENT → the effects of one group."""

    def __init__(self, group: EffectGroup) -> None:
        super().__init__(order_event_decoder)
        self._group = group

    def apply(self, batch: Sequence[tuple[ReceivedMessage, OrderEvent]]) -> Sequence[Decision]:
        """Claim, write, commit. Cost: one transaction of three statements a batch."""
        fresh: list[OrderEvent] = []
        decisions: list[Decision] = []
        with transaction.atomic(durable=True):
            now = begin()
            new = inbox.claim(
                group=self._group.name,
                entries=[
                    InboxEntry(
                        message_id=event.message_id,
                        outcome="APPLIED",
                        reservation_id=event.reservation_id,
                        order_id=event.order_id,
                        delivery_attempt=message.delivery_attempt,
                    )
                    for message, event in batch
                ],
            )
            for _, event in batch:
                first = event.message_id in new
                new.discard(event.message_id)  # a double inside the batch counts once
                decisions.append(DONE if first else DUPLICATE)
                if first:
                    fresh.append(event)
            self._group.write(fresh, now=now)
            faultpoint.hit("effect.before_commit")
        return decisions

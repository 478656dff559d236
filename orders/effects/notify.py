"""Notification: a mail to the buyer, queued with the inbox; `orders/notifications.py` sends it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from messaging.topology import CG_NOTIFY
from orders.contracts import OrderEvent
from orders.database import execute
from orders.effects.base import EffectGroup

# One mail a fact, whatever the message's id.
_QUEUE: Final = """
INSERT INTO orders_notification (source_type, source_id, channel, activity_id, user_id,
    amount_cents, currency, status, tries, error)
SELECT source_type, source_id, 'mail', activity_id, user_id, amount_cents, currency, 'PENDING',
    0, ''
FROM unnest(%b::text[], %b::text[], %b::bigint[], %b::text[], %b::bigint[], %b::text[])
    AS row(source_type, source_id, activity_id, user_id, amount_cents, currency)
ON CONFLICT DO NOTHING
"""


class Notify(EffectGroup):
    """Queues mails. Nothing is sent here: a slow mail server holds nobody's transaction."""

    name = CG_NOTIFY

    def write(self, events: Sequence[OrderEvent], *, now: datetime) -> None:
        """Queue a PENDING mail for each new event."""
        rows = sorted(events, key=lambda event: (event.event_type, event.order_id))
        if rows:
            execute(
                _QUEUE,
                (
                    [event.event_type for event in rows],
                    [event.order_id for event in rows],
                    [event.activity_id for event in rows],
                    [event.user_id for event in rows],
                    [event.payload.amount_cents for event in rows],
                    [event.payload.currency for event in rows],
                ),
            )


EFFECT = Notify()

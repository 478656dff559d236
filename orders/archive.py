"""The audit group: every event of an order goes into the event archive, as it came."""

from collections.abc import Sequence
from typing import Final

from django.db import transaction

from messaging import event_archive
from messaging.broker.base import ReceivedMessage
from messaging.disposition import DONE, DUPLICATE, Decision
from messaging.envelope import parse_instant
from messaging.event_archive import EventFacts
from orders.contracts import OrderEvent, order_event_decoder
from orders.database import begin
from orders.handlers import DecodingHandler


class ArchiveHandler(DecodingHandler[OrderEvent]):
    """ORDER_EVENT → the archive. Its primary key is the idempotence."""

    def apply(self, batch: Sequence[tuple[ReceivedMessage, OrderEvent]]) -> Sequence[Decision]:
        """Append what is new. Cost: one transaction of two statements a batch."""
        with transaction.atomic(durable=True):
            begin()
            new = event_archive.append(
                [
                    (
                        EventFacts(
                            event_id=event.event_id,
                            aggregate_id=event.aggregate_id,
                            aggregate_version=event.aggregate_version,
                            activity_id=event.activity_id,
                            occurred_at=parse_instant(event.occurred_at),
                        ),
                        message,
                    )
                    for message, event in batch
                ]
            )
        return [DONE if event.event_id in new else DUPLICATE for _, event in batch]


ARCHIVE_HANDLER: Final = ArchiveHandler(order_event_decoder)

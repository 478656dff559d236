"""Builders that the messaging tests share."""

import time
from collections.abc import Callable, Iterable, Sequence

from django.db import connection, transaction
from ulid import ULID

from messaging import inbox, outbox
from messaging.broker.base import OutgoingMessage, ReceivedMessage
from messaging.broker.memory import MemoryBroker
from messaging.disposition import DONE, DUPLICATE, Decision
from messaging.inbox import InboxEntry
from messaging.inflow import LoopOptions
from messaging.outbox import OutboxMessage
from messaging.topology import CG_ORDER_CREATE, ORDER_CREATE

OPTIONS = LoopOptions(
    batch_max=128, invisible_s=10, min_left_s=1, wait_s=1, ack_timeout_ms=1000, pollers=2
)


def evt() -> str:
    return f"evt_{ULID()}"


def eventually(condition: Callable[[], object], within_s: float = 10.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "not within its time"
        time.sleep(0.01)


def publish(broker: MemoryBroker, *ids: str, body: bytes = b"{}") -> None:
    producer = broker.producer()
    for message_id in ids:
        result = producer.send(
            [
                OutgoingMessage(
                    topic=ORDER_CREATE,
                    message_id=message_id,
                    body=body,
                    tag="CREATE_ORDER",
                    keys=("rsv_" + message_id.removeprefix("evt_"),),
                )
            ],
            timeout_ms=1000,
        )
        assert result.outcome == "CONFIRMED"


def acked(broker: MemoryBroker) -> list[str]:
    return broker.acked(group=CG_ORDER_CREATE, topic=ORDER_CREATE)


class InboxHandler:
    """The smallest handler with an effect: an inbox row in a durable transaction.

    `inject` is called inside the transaction, after the claim, with the ids of the batch.
    """

    def __init__(self, inject: Callable[[list[str]], None] | None = None) -> None:
        self.inject = inject or (lambda ids: None)
        self.batches: list[list[str]] = []

    def handle(self, messages: Sequence[ReceivedMessage]) -> Sequence[Decision]:
        ids = [message.message_id for message in messages]
        self.batches.append(ids)
        with transaction.atomic(durable=True):
            new = inbox.claim(
                group=CG_ORDER_CREATE,
                entries=[InboxEntry(message_id=i, outcome="APPLIED") for i in ids],
            )
            self.inject(ids)
        return [DONE if i in new else DUPLICATE for i in ids]


def inbox_ids() -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT message_id FROM messaging_inbox")
        return {message_id for (message_id,) in cursor.fetchall()}


def event(event_id: str | None = None, **changes: object) -> OutboxMessage:
    values: dict[str, object] = {
        "topic": "ORDER_EVENT_V1",
        "tag": "ORDER_CREATED",
        "event_id": event_id or evt(),
        "keys": ["rsv_1"],
        "body": b'{"n": 1}',
        "lane": outbox.LANE_EVENTS,
        **changes,
    }
    return OutboxMessage(**values)  # type: ignore[arg-type]


def timeout_message(event_id: str | None = None, **changes: object) -> OutboxMessage:
    return event(
        event_id,
        topic="ORDER_TIMEOUT_V1",
        tag="CANCEL_IF_UNPAID",
        lane=outbox.LANE_TIMEOUTS,
        deliver_at_ms=time.time_ns() // 1_000_000 + 1000,
        **changes,
    )


def add(messages: Iterable[OutboxMessage]) -> None:
    with transaction.atomic():
        outbox.add(list(messages))


def terminate_others() -> int:
    """Cut every other connection to this database, as a restart of PostgreSQL does."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        )
        return int(cursor.fetchone()[0])

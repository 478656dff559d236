"""The hot endpoint with the real broker behind it."""

from collections.abc import Iterator
from typing import Any

import pytest

from messaging.broker import broker
from messaging.broker.base import ReceivedMessage
from messaging.topology import CG_ORDER_CREATE, ORDER_CREATE, TAG_CREATE_ORDER
from orders.contracts import create_order_decoder
from tests.fixtures.sales import Sale
from tests.fixtures.web import StartWeb, in_thread


@pytest.fixture
def receiver(provisioned: str) -> Iterator[Any]:
    made = broker().receiver(group=CG_ORDER_CREATE, topic=ORDER_CREATE, tags=(TAG_CREATE_ORDER,))
    yield made
    made.close()


async def test_accepted_reservation_is_stored_by_the_broker(
    start_web: StartWeb, sale: Sale, receiver: Any, settings: Any
) -> None:
    # A cold or busy broker misses the 40 ms of production, and PENDING is a truthful answer then;
    # this test is about the answer that promises storage.
    settings.SECKILL_SEND_BUDGET_MS = 8_000
    web = await start_web(producer=broker().async_producer())

    reply = await web.buy(sale, "alice")

    assert reply.status == 202
    assert reply.json["status"] == "QUEUED"
    message = await in_thread(message_of, receiver, reply.json["reservation_id"])
    sent = create_order_decoder.decode(message.body)
    assert sent.user_id == "alice"
    assert message.message_id == sent.message_id
    assert message.properties["origin_topic"] == ORDER_CREATE


def message_of(receiver: Any, reservation_id: str) -> ReceivedMessage:
    for _ in range(6):
        found: list[ReceivedMessage] = receiver.receive(max_messages=32, invisible_s=15, wait_s=5)
        if found:
            assert receiver.ack(found, timeout_ms=3_000) == []
        for message in found:
            if reservation_id in message.keys:  # another test's may be unreadable on purpose
                return message
    raise AssertionError("the broker delivered nothing in 30 s")

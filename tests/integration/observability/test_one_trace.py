"""One trace from the buyer's POST to the read model, also across redelivery, resend and replay.

Real Redis and PostgreSQL, the broker in memory (its clock can be moved), an exporter in memory.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import telemetry
from inventory.contracts import Reservation
from messaging import outbox, replays
from messaging.broker.base import ReceivedMessage
from messaging.broker.memory import MemoryBroker, SystemClock
from messaging.consumer import run_loop
from messaging.disposition import Decision
from messaging.inflow import LoopOptions
from messaging.outbox import LANE_EVENTS, OutboxMessage
from messaging.relay import Relay
from messaging.topology import CG_ORDER_CREATE, CG_ORDER_PROJECTION, ORDER_CREATE, enabled_groups
from messaging.worker import StopSignal
from orders.handlers import ORDER_CREATE_HANDLER, PROJECTION_HANDLER
from orders.scan.resend import Resender
from telemetry.export import provider_of
from tests.fixtures.sales import Sale
from tests.fixtures.web import StartWeb, in_thread

TRACE = "ab" * 16
CALLER = f"00-{TRACE}-{'cd' * 8}-00"
SPECS = {spec.name: spec for spec in enabled_groups()}


class Spans:
    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    def all(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def named(self, name: str, **attributes: Any) -> list[ReadableSpan]:
        wanted = {key.replace("__", "."): value for key, value in attributes.items()}
        return [
            span
            for span in self.all()
            if span.name == name and wanted.items() <= dict(span.attributes or {}).items()
        ]

    def one(self, name: str, **attributes: Any) -> ReadableSpan:
        (span,) = self.named(name, **attributes)
        return span


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    memory = InMemorySpanExporter()
    provider = provider_of(memory, service="test", at_once=True)
    telemetry.switch(provider.get_tracer("seckill"), ratio=1.0)
    yield memory
    telemetry.switch(None)
    provider.shutdown()


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> Spans:
    return Spans(exporter)


class AheadClock(SystemClock):
    """The real clock, some seconds ahead."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def now_ms(self) -> int:
        return super().now_ms() + int(self.ahead_s * 1000)

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s


@pytest.fixture
def clock() -> AheadClock:
    return AheadClock()


@pytest.fixture
def broker(clock: AheadClock) -> MemoryBroker:
    return MemoryBroker(clock=clock)


def consume(broker: MemoryBroker, group: str, handler: Any) -> None:
    """Receive once and settle what came."""
    spec = SPECS[group]
    receiver = broker.receiver(group=group, topic=spec.topic, tags=spec.tags)
    options = replace(LoopOptions.from_settings(), wait_s=0)
    run_loop(spec, handler, receiver, StopSignal(), options=options, once=True)


def relay(broker: MemoryBroker) -> None:
    """Publish what lies in the outbox's lane of events."""
    made = Relay(broker.producer(), lease_s=10.0, timeout_ms=1000)
    try:
        made.run_round(lane=LANE_EVENTS, limit=64)
    finally:
        made.close()


class FailsOnce:
    """A handler whose first batch fails for a reason that nobody knows."""

    def __init__(self) -> None:
        self.failed = False

    def handle(self, messages: Sequence[ReceivedMessage]) -> Sequence[Decision]:
        if not self.failed:
            self.failed = True
            raise ValueError("a bug")
        return ORDER_CREATE_HANDLER.handle(messages)


def parent(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


def links(span: ReadableSpan) -> list[int]:
    assert all(link.context.trace_id == span.context.trace_id for link in span.links)
    return [link.context.span_id for link in span.links]


async def test_a_purchase_is_one_trace(
    start_web: StartWeb, sale: Sale, broker: MemoryBroker, spans: Spans
) -> None:
    web = await start_web(producer=broker.async_producer())

    reply = await web.buy(sale, "alice", headers={"traceparent": CALLER})
    await in_thread(consume, broker, CG_ORDER_CREATE, ORDER_CREATE_HANDLER)
    await in_thread(relay, broker)
    await in_thread(consume, broker, CG_ORDER_PROJECTION, PROJECTION_HANDLER)

    assert reply.status == 202
    assert {f"{span.context.trace_id:032x}" for span in spans.all()} == {TRACE}
    request = spans.one("POST reservation", seckill__code="QUEUED")
    assert (request.kind, f"{parent(request):016x}") == (SpanKind.SERVER, "cd" * 8)
    gate = spans.one("reserve at the gate")
    send = spans.one("send ORDER_CREATE_V1", seckill__send_outcome="CONFIRMED")
    assert parent(gate) == parent(send) == request.context.span_id
    consumed = spans.one("process ORDER_CREATE_V1", seckill__decision="ACK_DONE")
    assert parent(consumed) == send.context.span_id
    assert parent(spans.one("order transaction")) == consumed.context.span_id
    event = spans.one("send ORDER_EVENT_V1")
    assert parent(event) == request.context.span_id
    projected = spans.one("process ORDER_EVENT_V1")
    assert parent(projected) == event.context.span_id
    for step in ("confirm at the gate", "project"):
        assert parent(spans.one(step)) == projected.context.span_id
    ids = {send.attributes["seckill.reservation_id"], consumed.attributes["seckill.reservation_id"]}
    assert ids == {reply.json["reservation_id"]}
    assert not any("alice" in str(dict(span.attributes or {})) for span in spans.all())
    assert all(span.end_time >= span.start_time > 0 for span in spans.all())


async def test_a_redelivery_links_to_the_delivery_before(
    start_web: StartWeb, sale: Sale, broker: MemoryBroker, clock: AheadClock, spans: Spans
) -> None:
    web = await start_web(producer=broker.async_producer())
    await web.buy(sale, "alice")
    handler = FailsOnce()

    await in_thread(consume, broker, CG_ORDER_CREATE, handler)
    clock.ahead_s = 60
    await in_thread(consume, broker, CG_ORDER_CREATE, handler)

    first = spans.one("process ORDER_CREATE_V1", seckill__delivery_attempt=1)
    second = spans.one("process ORDER_CREATE_V1", seckill__delivery_attempt=2)
    assert first.status.status_code is StatusCode.ERROR
    assert (links(first), links(second)) == ([], [first.context.span_id])
    assert first.context.trace_id == second.context.trace_id
    assert second.status.status_code is StatusCode.UNSET
    assert parent(spans.one("order transaction")) == second.context.span_id


async def test_a_resend_links_to_the_send_before(
    start_web: StartWeb, sale: Sale, broker: MemoryBroker, spans: Spans
) -> None:
    web = await start_web(producer=broker.async_producer())
    await web.buy(sale, "alice")
    (message,) = broker.stored(ORDER_CREATE)
    stored = Reservation(
        activity_id=sale.activity_id,
        sku_id=sale.sku_id,
        reservation_id=message.keys[0],
        order_id=message.keys[1],
        request_id=message.keys[2],
        message_id=message.message_id,
        user_id="alice",
        quantity=1,
        status="RESERVED",
        mq_status="MQ_PENDING",
        created_at_ms=1,
        valid_until_ms=2,
        traceparent=message.properties["traceparent"],
        send_attempt=1,
    )

    resender = Resender(broker.producer())
    resender.send([stored])
    resender.close()

    first = spans.one("send ORDER_CREATE_V1", seckill__send_attempt=1)
    again = spans.one("send ORDER_CREATE_V1", seckill__send_attempt=2)
    assert links(again) == [first.context.span_id]
    assert again.context.trace_id == first.context.trace_id


async def test_a_replay_links_to_the_first_send(
    start_web: StartWeb, sale: Sale, broker: MemoryBroker, spans: Spans
) -> None:
    web = await start_web(producer=broker.async_producer())
    await web.buy(sale, "alice")
    (message,) = broker.stored(ORDER_CREATE)
    again = OutboxMessage(
        topic=message.topic,
        tag=message.tag,
        event_id=message.message_id,
        keys=message.keys,
        body=message.body,
        lane=LANE_EVENTS,
        properties={
            "traceparent": message.properties["traceparent"],
            **replays.properties(replay_id="rpl_1", replay_count=1, target_group=CG_ORDER_CREATE),
        },
        max_attempts=1,
        replay_id="rpl_1",
    )

    await in_thread(outbox.add, [again])
    await in_thread(relay, broker)
    await in_thread(consume, broker, CG_ORDER_CREATE, ORDER_CREATE_HANDLER)

    (original,) = [
        span
        for span in spans.named("send ORDER_CREATE_V1")
        if "seckill.replay_id" not in (span.attributes or {})
    ]
    replayed = spans.one("send ORDER_CREATE_V1", seckill__replay_id="rpl_1")
    assert links(replayed) == [original.context.span_id]
    delivered = spans.one("process ORDER_CREATE_V1", seckill__replay_id="rpl_1")
    assert parent(delivered) == replayed.context.span_id
    assert links(delivered) == [original.context.span_id]
    assert {span.context.trace_id for span in spans.all()} == {original.context.trace_id}


@pytest.mark.parametrize(("ratio", "recorded"), [(0.0, False), (1.0, True)])
async def test_our_dice_decide_and_not_the_callers_flag(
    start_web: StartWeb,
    sale: Sale,
    broker: MemoryBroker,
    exporter: InMemorySpanExporter,
    ratio: float,
    recorded: bool,
) -> None:
    telemetry.switch(telemetry._tracer, ratio=ratio)
    web = await start_web(producer=broker.async_producer())

    await web.buy(sale, "alice", headers={"traceparent": f"00-{TRACE}-{'cd' * 8}-01"})
    await in_thread(consume, broker, CG_ORDER_CREATE, ORDER_CREATE_HANDLER)

    (message,) = broker.stored(ORDER_CREATE)
    assert message.properties["traceparent"].startswith(f"00-{TRACE}-")
    assert message.properties["traceparent"].endswith("-01" if recorded else "-00")
    assert bool(exporter.get_finished_spans()) is recorded


async def test_without_an_exporter_the_callers_context_goes_on_unchanged(
    start_web: StartWeb, sale: Sale, broker: MemoryBroker
) -> None:
    assert not telemetry.enabled()
    web = await start_web(producer=broker.async_producer())

    await web.buy(sale, "alice", headers={"traceparent": CALLER})

    (message,) = broker.stored(ORDER_CREATE)
    assert message.properties["traceparent"] == CALLER


def test_ids_of_the_same_work_are_the_same_in_every_process() -> None:
    assert telemetry.span_id("send", "evt_1", "", 1) == telemetry.span_id("send", "evt_1", "", 1)
    different = {
        telemetry.span_id("send", "evt_1", "", 1),
        telemetry.span_id("send", "evt_1", "", 2),
        telemetry.span_id("send", "evt_1", "rpl_1", 1),
        telemetry.span_id("send", "evt_11", "", 1),
    }
    assert len(different) == 4

"""Outbox → sender → RocketMQ → consumer → inbox, with every part real."""

import threading
import time
from collections.abc import Iterable, Sequence

import pytest
from django.db import connection, connections, transaction

from messaging import inbox
from messaging.broker import broker
from messaging.broker.base import ReceivedMessage
from messaging.consumer import run_loop
from messaging.disposition import DONE, DUPLICATE, Decision
from messaging.errors import PermanentError
from messaging.inbox import InboxEntry
from messaging.inflow import LoopOptions
from messaging.models import OutboxRow, QuarantineRow
from messaging.outbox import OutboxMessage
from messaging.sender import sender_loops
from messaging.topology import CG_ORDER_PROJECTION, CG_ORDER_TIMEOUT, group_spec
from messaging.worker import StopSignal
from tests.integration.messaging.messages import add, event, eventually, evt, timeout_message

pytestmark = pytest.mark.django_db(transaction=True)

OPTIONS = LoopOptions(
    batch_max=128, invisible_s=10, min_left_s=2, wait_s=5, ack_timeout_ms=3000, pollers=2
)


class Effects:
    """An inbox row per message; the poison one is refused. Remembers what it saw.

    `own`: the test's messages; what other tests left in the topic is acked and forgotten.
    """

    def __init__(self, group: str, own: Iterable[OutboxMessage], poison: str = "") -> None:
        self.group = group
        self.own = {message.event_id for message in own}
        self.poison = poison
        self.seen: list[ReceivedMessage] = []
        self.largest = 0

    def handle(self, messages: Sequence[ReceivedMessage]) -> Sequence[Decision]:
        self.largest = max(self.largest, len(messages))
        if self.poison in [m.message_id for m in messages]:
            raise PermanentError("POISON")
        with transaction.atomic(durable=True):
            new = inbox.claim(
                group=self.group,
                entries=[
                    InboxEntry(message_id=m.message_id, outcome="APPLIED")
                    for m in messages
                    if m.message_id in self.own
                ],
            )
        self.seen += [m for m in messages if m.message_id in self.own]
        return [DONE if m.message_id in new else DUPLICATE for m in messages]


def in_threads(stop: StopSignal, *runs: object) -> list[threading.Thread]:
    def guarded(run: object) -> None:
        try:
            run()  # type: ignore[operator]
        finally:
            connections.close_all()

    threads = [threading.Thread(target=guarded, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    return threads


def consumer(name: str, handler: Effects, stop: StopSignal) -> object:
    spec = group_spec(name)
    receiver = broker().receiver(group=spec.name, topic=spec.topic, tags=spec.tags)
    return lambda: run_loop(spec, handler, receiver, stop, options=OPTIONS)


def inbox_count(group: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM messaging_inbox WHERE consumer_group = %s", [group])
        return int(cursor.fetchone()[0])


@pytest.mark.usefixtures("provisioned")
def test_events_and_timeouts_arrive_once_with_their_bytes_and_poison_is_set_aside() -> None:
    poison = evt()
    body = '{"note": "雪", "n": 1}'.encode()
    events = [event(body=body) for _ in range(300)] + [event(poison)]
    timeouts = [timeout_message() for _ in range(20)]
    add([*events, *timeouts])
    stop = StopSignal()
    projection = Effects(CG_ORDER_PROJECTION, events, poison)
    cancel = Effects(CG_ORDER_TIMEOUT, timeouts)
    loops = sender_loops(broker(), stop)
    threads = in_threads(
        stop,
        *[lambda loop=loop: loop.run(stop, loop.pulse) for loop in loops],
        consumer(CG_ORDER_PROJECTION, projection, stop),
        consumer(CG_ORDER_TIMEOUT, cancel, stop),
    )
    try:
        eventually(lambda: inbox_count(CG_ORDER_PROJECTION) == 300, within_s=60)
        eventually(lambda: inbox_count(CG_ORDER_TIMEOUT) == 20, within_s=30)
        eventually(lambda: QuarantineRow.objects.exists(), within_s=10)
        eventually(lambda: not OutboxRow.objects.exclude(state=1).exists(), within_s=10)
    finally:
        stop.set()
        for thread in threads:
            thread.join(10)
    assert not any(thread.is_alive() for thread in threads)

    assert QuarantineRow.objects.get().message_id == poison
    assert projection.largest > 1
    sent = {m.event_id for m in events} - {poison}
    assert {m.message_id for m in projection.seen} == sent
    assert {m.body for m in projection.seen} == {body}
    first = projection.seen[0]
    assert first.properties["message_id"] == first.message_id
    assert first.properties["origin_topic"] == "ORDER_EVENT_V1"
    due = {m.event_id: m.deliver_at_ms for m in timeouts}
    assert {m.message_id for m in cancel.seen} == set(due)


@pytest.mark.usefixtures("provisioned")
def test_two_members_share_a_group_and_one_that_stops_gives_back_what_it_holds() -> None:
    """Case 38's orderly half: what a member held is with the other before its time-out."""
    events = [event() for _ in range(500)]
    add(events)
    both, first_stop, go_on = StopSignal(), StopSignal(), threading.Event()

    class Stuck(Effects):
        def handle(self, messages: Sequence[ReceivedMessage]) -> Sequence[Decision]:
            first_stop.set()
            assert go_on.wait(20)
            return super().handle(messages)

    stuck = Stuck(CG_ORDER_PROJECTION, events)
    other = Effects(CG_ORDER_PROJECTION, events)
    loops = sender_loops(broker(), both)
    threads = in_threads(
        both,
        *[lambda loop=loop: loop.run(both, loop.pulse) for loop in loops],
        consumer(CG_ORDER_PROJECTION, stuck, first_stop),
    )
    eventually(first_stop.is_set, within_s=30)
    threads += in_threads(both, consumer(CG_ORDER_PROJECTION, other, both))
    started = time.monotonic()
    go_on.set()
    try:
        eventually(lambda: inbox_count(CG_ORDER_PROJECTION) == 500, within_s=30)
    finally:
        both.set()
        for thread in threads:
            thread.join(10)

    assert not any(thread.is_alive() for thread in threads)
    assert time.monotonic() - started < 25
    assert not QuarantineRow.objects.exists()

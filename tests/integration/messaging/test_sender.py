"""The sender's loops: starved by no row, stuck by no restart, held back while orders lag."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.db import connection, connections, transaction
from pytest_django import Settings

from messaging import outbox, outbox_rows, sender
from messaging.broker.memory import MAX_BODY, MemoryBroker
from messaging.models import OutboxRow, QuarantineRow
from messaging.outbox import LANE_EVENTS, LANE_TIMEOUTS
from messaging.pulse import LoopState, Pulse
from messaging.relay import Relay
from messaging.sender import LaneLoop, sender_loops
from messaging.topology import CG_ORDER_CREATE, ORDER_EVENT, ORDER_TIMEOUT
from messaging.worker import StopSignal
from tests.integration.messaging.messages import (
    add,
    event,
    eventually,
    terminate_others,
    timeout_message,
)

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def running(loop: LaneLoop) -> Iterator[Pulse]:
    stop, pulse = StopSignal(), Pulse()

    def run() -> None:
        try:
            loop.run(stop, pulse)
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield pulse
    finally:
        stop.set()
        thread.join(10)


def test_a_poison_row_starves_nobody(
    broker: MemoryBroker, make_relay: Callable[..., Relay], settings: Settings
) -> None:
    """Case 30: the oldest row can never be sent; 500 good ones are out within 2 s."""
    settings.SECKILL_EVENT_WAIT_S = 0  # a rush is another test's matter
    poison = event(body=b'"' + b"x" * MAX_BODY + b'"')
    good = [event() for _ in range(500)]
    add([poison, *good])
    started = time.monotonic()
    with running(LaneLoop(make_relay(broker.producer()), lane=LANE_EVENTS)):
        eventually(lambda: len(broker.stored(ORDER_EVENT)) == 500, within_s=2)
        eventually(lambda: not OutboxRow.objects.filter(state=0).exists(), within_s=2)

    assert time.monotonic() - started < 4
    assert {m.message_id for m in broker.stored(ORDER_EVENT)} == {m.event_id for m in good}
    row = QuarantineRow.objects.get()
    assert (row.message_id, row.source, row.consumer_group) == (poison.event_id, "OUTBOX", "OUTBOX")
    assert row.reason == "SEND_41301"
    assert OutboxRow.objects.get(state=outbox.STATE_QUARANTINED).event_id == poison.event_id


def test_a_restarted_database_never_sticks_the_sender(broker: MemoryBroker) -> None:
    stop = StopSignal()
    loops = sender_loops(broker, stop)

    def run(loop: object) -> None:
        try:
            loop.run(stop, loop.pulse)  # type: ignore[attr-defined]
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(loop,)) for loop in loops]
    for thread in threads:
        thread.start()
    try:
        for sent in range(1, 4):
            add([event(), timeout_message()])
            eventually(lambda want=sent: len(broker.stored(ORDER_EVENT)) == want)
            eventually(lambda want=sent: len(broker.stored(ORDER_TIMEOUT)) == want)
            assert terminate_others() >= 1
    finally:
        stop.set()
        for thread in threads:
            thread.join(10)
    assert len({m.message_id for m in broker.stored(ORDER_EVENT)}) == 3


def test_events_wait_while_there_is_a_rush(
    broker: MemoryBroker, make_relay: Callable[..., Relay], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_per_s = 200  # as many as make a rush
    asked: list[int] = []

    def is_rushing(*, lane: int, per_s: int, wait_s: float) -> bool:
        assert (lane, wait_s) == (LANE_EVENTS, 15.0)
        asked.append(per_s)
        return now_per_s >= per_s

    monkeypatch.setattr(outbox_rows, "is_rushing", is_rushing)
    monkeypatch.setitem(sender._LIMIT, LANE_EVENTS, 10)
    add([event() for _ in range(25)])
    with running(LaneLoop(make_relay(broker.producer()), lane=LANE_EVENTS)) as pulse:
        eventually(lambda: pulse.snapshot()[0] is LoopState.WAITING)
        assert len(broker.stored(ORDER_EVENT)) == 10  # it noticed by a claim that found rows
        now_per_s = 50
        before = len(asked)
        eventually(lambda: len(asked) > before + 1)
        assert len(broker.stored(ORDER_EVENT)) == 10  # it slackens: not over yet
        now_per_s = 49
        eventually(lambda: len(broker.stored(ORDER_EVENT)) == 25)


@pytest.mark.parametrize(
    ("fresh", "older_s", "rushing"),
    [
        (20, [], True),
        (19, [], False),
        (19, [30], False),  # what has been due for longer does not count
        (20, [30], True),
        (20, [61], False),  # somebody has waited long enough
    ],
)
def test_a_rush_is_many_rows_in_a_second_and_nobody_waits_too_long(
    fresh: int, older_s: list[int], rushing: bool
) -> None:
    with transaction.atomic():  # now() is the transaction's: the fresh ones do not age
        add([event() for _ in range(len(older_s))])
        with connection.cursor() as cursor:
            for seconds in older_s:
                cursor.execute(
                    "UPDATE messaging_outbox SET available_at = now() - %s * interval '1 second'",
                    [seconds],
                )
        add([event() for _ in range(fresh)])
        add([timeout_message() for _ in range(30)])  # another lane

        assert outbox_rows.is_rushing(lane=LANE_EVENTS, per_s=20, wait_s=60) is rushing


def test_timeouts_wait_while_live_order_consumers_lag(
    broker: MemoryBroker, make_relay: Callable[..., Relay]
) -> None:
    add([timeout_message()])
    with connection.cursor() as cursor:
        cursor.execute(
            'INSERT INTO messaging_heartbeat (worker_id, role, "group", build, version, started_at,'
            " beat_at, state, detail) VALUES ('w', 'consumer', %s, 1, '', now(),"
            " now() + interval '60 s', 'RUNNING', '{\"lag_s\": 3}')",
            [CG_ORDER_CREATE],
        )
    relay = make_relay(broker.producer())
    with running(LaneLoop(relay, lane=LANE_TIMEOUTS)) as pulse:
        eventually(lambda: pulse.snapshot()[0] is LoopState.WAITING)
        assert broker.stored(ORDER_TIMEOUT) == []
        with connection.cursor() as cursor:
            cursor.execute("UPDATE messaging_heartbeat SET detail = '{\"lag_s\": 0.5}'")
        eventually(lambda: len(broker.stored(ORDER_TIMEOUT)) == 1)

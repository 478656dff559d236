"""The sender's loops: starved by no row, stuck by no restart, held back while orders lag."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

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


@pytest.fixture
def flow(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Set how the lane of events seems to fill; `asked` counts how often the sender looked."""
    said: dict[str, float] = {"per_s": 0, "oldest_s": 0.0, "asked": 0}

    def lane_flow(*, lane: int, most: int) -> outbox_rows.LaneFlow:
        assert lane == LANE_EVENTS
        said["asked"] += 1
        return outbox_rows.LaneFlow(fresh=min(int(said["per_s"]), most), oldest_s=said["oldest_s"])

    monkeypatch.setattr(outbox_rows, "lane_flow", lane_flow)
    monkeypatch.setitem(sender._LIMIT, LANE_EVENTS, 10)
    return said


def looked_twice_more(flow: dict[str, float]) -> None:
    before = flow["asked"]
    eventually(lambda: flow["asked"] > before + 1)


def test_events_wait_while_there_is_a_rush(
    broker: MemoryBroker, make_relay: Callable[..., Relay], flow: dict[str, float]
) -> None:
    flow["per_s"] = 200
    add([event() for _ in range(25)])
    with running(LaneLoop(make_relay(broker.producer()), lane=LANE_EVENTS)) as pulse:
        eventually(lambda: pulse.snapshot()[0] is LoopState.WAITING)
        assert len(broker.stored(ORDER_EVENT)) == 10  # it noticed by a claim that found rows
        flow["per_s"] = 50
        looked_twice_more(flow)
        assert len(broker.stored(ORDER_EVENT)) == 10  # it slackens: not over yet
        flow["per_s"] = 49
        eventually(lambda: len(broker.stored(ORDER_EVENT)) == 25)


def test_who_has_waited_long_enough_goes_and_the_rush_is_not_over(
    broker: MemoryBroker, make_relay: Callable[..., Relay], flow: dict[str, float]
) -> None:
    """Else a long rush of a middling rate would let go of everything at once after 15 s."""
    flow["per_s"] = 200
    add([event() for _ in range(45)])
    relay = make_relay(broker.producer())
    run_round = relay.run_round

    def young_again(*, lane: int, limit: int) -> int:
        if flow["oldest_s"]:
            flow["oldest_s"] = 14.9  # who had waited is in this claim
        return run_round(lane=lane, limit=limit)

    with (
        mock.patch.object(relay, "run_round", young_again),
        running(LaneLoop(relay, lane=LANE_EVENTS)) as pulse,
    ):
        eventually(lambda: pulse.snapshot()[0] is LoopState.WAITING)
        flow |= {"per_s": 60, "oldest_s": 15.0}
        eventually(lambda: len(broker.stored(ORDER_EVENT)) == 20)
        looked_twice_more(flow)
        assert len(broker.stored(ORDER_EVENT)) == 20
        flow["per_s"] = 49
        eventually(lambda: len(broker.stored(ORDER_EVENT)) == 45)


@pytest.mark.parametrize(
    ("fresh", "older_s", "want"),
    [
        (20, [], (20, 0.0)),
        (25, [], (20, 0.0)),  # counts no further than asked
        (19, [30], (19, 30.0)),  # what has been due for longer is not fresh
        (0, [30, 61], (0, 61.0)),
        (0, [], (0, 0.0)),
    ],
)
def test_a_lane_s_flow_is_what_became_due_in_a_second_and_the_oldest(
    fresh: int, older_s: list[int], want: tuple[int, float]
) -> None:
    with transaction.atomic():  # now() is the transaction's: the fresh ones do not age
        add([event() for _ in older_s])
        with connection.cursor() as cursor:
            rows = zip(OutboxRow.objects.values_list("id", flat=True), older_s, strict=True)
            cursor.executemany(
                "UPDATE messaging_outbox SET available_at = now() - %s * interval '1 second'"
                " WHERE id = %s",
                [(seconds, row_id) for row_id, seconds in rows],
            )
        add([event() for _ in range(fresh)])
        add([timeout_message() for _ in range(30)])  # another lane

        flow = outbox_rows.lane_flow(lane=LANE_EVENTS, most=20)

    assert (flow.fresh, flow.oldest_s) == want


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

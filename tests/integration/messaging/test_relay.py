"""The outbox relay on real PostgreSQL: the ways in which real relays lost, doubled or starved."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from django.db import connection, connections, transaction

from messaging import outbox, outbox_rows
from messaging.backpressure import TopicBreaker
from messaging.broker.base import FailureClass, OutgoingMessage, SendOutcome, SendResult
from messaging.broker.memory import MAX_BODY, MemoryBroker, SendFault
from messaging.models import OutboxRow, QuarantineRow
from messaging.outbox import LANE_COMPENSATE, LANE_EVENTS, LANE_TIMEOUTS
from messaging.pulse import LoopState, Pulse
from messaging.relay import Relay
from messaging.sender import LaneLoop, sender_loops
from messaging.topic_breakers import TopicBreakers
from messaging.topology import CG_ORDER_CREATE, INVENTORY_COMPENSATE, ORDER_EVENT, ORDER_TIMEOUT
from messaging.worker import StopSignal
from tests.integration.messaging.messages import (
    add,
    event,
    eventually,
    evt,
    terminate_others,
    timeout_message,
)

pytestmark = pytest.mark.django_db(transaction=True)

CONFIRMED = SendResult(outcome=SendOutcome.CONFIRMED)
UNKNOWN = SendResult(outcome=SendOutcome.UNKNOWN, code="50001")


class Producer:
    """Records calls; `answer` decides each of them."""

    def __init__(
        self, answer: Callable[[Sequence[OutgoingMessage]], SendResult] = lambda m: CONFIRMED
    ) -> None:
        self.answer = answer
        self.calls: list[list[OutgoingMessage]] = []
        self._lock = threading.Lock()

    def send(self, messages: Sequence[OutgoingMessage], *, timeout_ms: int) -> SendResult:
        assert connection.connection is None or not connection.in_atomic_block
        with self._lock:
            self.calls.append(list(messages))
        return self.answer(messages)

    def close(self) -> None:
        pass

    @property
    def ids(self) -> list[str]:
        return [m.message_id for call in self.calls for m in call]


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def make_relay() -> Iterator[Callable[..., Relay]]:
    made: list[Relay] = []

    def make(producer: object, **changes: object) -> Relay:
        relay = Relay(producer, **{"lease_s": 10.0, "timeout_ms": 1000, **changes})  # type: ignore[arg-type]
        made.append(relay)
        return relay

    yield make
    for relay in made:
        relay.close()


def rows() -> list[OutboxRow]:
    return list(OutboxRow.objects.order_by("id"))


def make_due() -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE messaging_outbox SET available_at = now() WHERE state = 0")


def test_rows_go_out_as_the_same_bytes_with_their_ids_and_are_marked(
    broker: MemoryBroker, make_relay: Callable[..., Relay]
) -> None:
    body = '{"名": "é", "n": 1.0}'.encode()
    traceparent = f"00-{'a' * 32}-{'b' * 16}-01"
    one = event(body=body, keys=["rsv_1", "ord_1"], properties={"traceparent": traceparent})
    add([one])

    claimed = make_relay(broker.producer()).run_round(lane=LANE_EVENTS, limit=10)

    [stored] = broker.stored(ORDER_EVENT)
    assert claimed == 1
    assert (stored.message_id, stored.body, stored.keys) == (
        one.event_id, body, ("rsv_1", "ord_1"),
    )  # fmt: skip
    assert stored.properties == {
        "message_id": one.event_id,
        "origin_topic": ORDER_EVENT,
        "schema_version": "1",
        "traceparent": traceparent,
        "send_attempt": "1",
    }
    [row] = rows()
    assert (row.state, row.attempts, row.last_error) == (outbox.STATE_SENT, 1, "")
    assert row.sent_at is not None


def test_a_late_commit_below_rows_already_sent_is_still_published(
    broker: MemoryBroker, make_relay: Callable[..., Relay]
) -> None:
    """Case 29: A inserts, B inserts and commits, the relay runs, A commits, the relay runs."""
    relay = make_relay(broker.producer())
    early, late = event(), event()
    inserted, go_on = threading.Event(), threading.Event()

    def slow_transaction() -> None:
        try:
            with transaction.atomic():
                outbox.add([early])
                inserted.set()
                assert go_on.wait(10)
        finally:
            connections.close_all()

    thread = threading.Thread(target=slow_transaction)
    thread.start()
    assert inserted.wait(10)
    add([late])

    assert relay.run_round(lane=LANE_EVENTS, limit=10) == 1
    go_on.set()
    thread.join(10)
    assert relay.run_round(lane=LANE_EVENTS, limit=10) == 1

    assert [m.message_id for m in broker.stored(ORDER_EVENT)] == [late.event_id, early.event_id]
    first, second = rows()
    assert (first.event_id, second.event_id) == (early.event_id, late.event_id)  # ids as inserted


def test_a_poison_row_starves_nobody(
    broker: MemoryBroker, make_relay: Callable[..., Relay]
) -> None:
    """Case 30: the oldest row can never be sent; 500 good ones are out within 2 s."""
    poison = event(body=b'"' + b"x" * MAX_BODY + b'"')
    good = [event() for _ in range(500)]
    add([poison, *good])
    started = time.monotonic()
    stop, pulse = StopSignal(), Pulse()
    loop = LaneLoop(make_relay(broker.producer()), lane=LANE_EVENTS)

    def run() -> None:
        try:
            loop.run(stop, pulse)
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        eventually(lambda: len(broker.stored(ORDER_EVENT)) == 500, within_s=2)
        eventually(lambda: not OutboxRow.objects.filter(state=0).exists(), within_s=2)
    finally:
        stop.set()
        thread.join(10)

    assert time.monotonic() - started < 4
    assert {m.message_id for m in broker.stored(ORDER_EVENT)} == {m.event_id for m in good}
    row = QuarantineRow.objects.get()
    assert (row.message_id, row.source, row.consumer_group) == (poison.event_id, "OUTBOX", "OUTBOX")
    assert row.reason == "SEND_41301"
    assert OutboxRow.objects.get(state=outbox.STATE_QUARANTINED).event_id == poison.event_id


def test_a_bad_message_in_a_batch_takes_only_itself_to_quarantine(
    make_relay: Callable[..., Relay],
) -> None:
    bad = evt()
    refuse = SendResult(
        outcome=SendOutcome.DEFINITE_FAILURE, failure=FailureClass.BAD_MESSAGE, code="40006"
    )
    producer = Producer(lambda ms: refuse if bad in [m.message_id for m in ms] else CONFIRMED)
    good = [event() for _ in range(9)]
    add([*good[:4], event(bad), *good[4:]])

    make_relay(producer).run_round(lane=LANE_EVENTS, limit=64)

    assert [len(call) for call in producer.calls] == [10] + [1] * 10
    states = {row.event_id: row.state for row in rows()}
    assert states.pop(bad) == outbox.STATE_QUARANTINED
    assert set(states.values()) == {outbox.STATE_SENT}
    assert QuarantineRow.objects.get().message_id == bad


def test_one_failing_topic_does_not_stop_the_others_of_its_lane(
    make_relay: Callable[..., Relay],
) -> None:
    producer = Producer(lambda ms: UNKNOWN if ms[0].topic == INVENTORY_COMPENSATE else CONFIRMED)
    relay = make_relay(producer, breakers=TopicBreakers(monotonic=lambda: 0.0))
    broken = [
        event(topic=INVENTORY_COMPENSATE, tag="RELEASE_RESERVATION", lane=LANE_COMPENSATE)
        for _ in range(300)
    ]
    working = [event(lane=LANE_COMPENSATE) for _ in range(100)]
    add([*broken, *working])

    for _ in range(4):
        relay.run_round(lane=LANE_COMPENSATE, limit=128)

    assert OutboxRow.objects.filter(topic=ORDER_EVENT, state=1).count() == 100
    attempted = [c for c in producer.calls if c[0].topic == INVENTORY_COMPENSATE]
    assert len(attempted) == 3  # they open the breaker; its probe's time never comes here
    untried = OutboxRow.objects.filter(topic=INVENTORY_COMPENSATE, attempts=0)
    assert untried.count() == 300 - sum(len(call) for call in attempted)


def test_unknown_is_tried_again_later_with_the_same_id_and_bytes(
    broker: MemoryBroker, make_relay: Callable[..., Relay]
) -> None:
    """Case 13's twin in the outbox: stored, but the answer said nothing."""
    broker.fail_next_sends(SendFault.UNKNOWN_STORED)
    relay = make_relay(broker.producer())
    add([event()])

    assert relay.run_round(lane=LANE_EVENTS, limit=10) == 1
    [row] = rows()
    assert (row.state, row.attempts) == (outbox.STATE_DUE, 1)
    assert row.last_error.startswith("UNKNOWN INJECTED")
    assert relay.run_round(lane=LANE_EVENTS, limit=10) == 0  # not before its time
    make_due()
    assert relay.run_round(lane=LANE_EVENTS, limit=10) == 1

    first, second = broker.stored(ORDER_EVENT)
    assert (first.message_id, first.body) == (second.message_id, second.body)
    assert (first.properties["send_attempt"], second.properties["send_attempt"]) == ("1", "2")
    assert rows()[0].state == outbox.STATE_SENT


def test_a_row_is_given_up_after_its_attempts_while_its_topic_works(
    make_relay: Callable[..., Relay],
) -> None:
    bad = evt()
    producer = Producer(lambda ms: UNKNOWN if ms[0].message_id == bad else CONFIRMED)
    relay = make_relay(producer)
    add([event(bad, max_attempts=3)])

    for _ in range(3):
        add([event()])
        make_due()
        relay.run_round(lane=LANE_EVENTS, limit=1)
        relay.run_round(lane=LANE_EVENTS, limit=1)

    row = OutboxRow.objects.get(event_id=bad)
    assert (row.state, row.attempts) == (outbox.STATE_QUARANTINED, 3)
    assert QuarantineRow.objects.get().reason == "SEND_ATTEMPTS"


def test_a_long_broker_outage_gives_up_nothing_but_a_replay(
    make_relay: Callable[..., Relay],
) -> None:
    """A replay has one attempt and its item decides what next; everything else waits."""
    breakers = TopicBreakers()
    relay = make_relay(Producer(lambda ms: UNKNOWN), breakers=breakers)
    for _ in range(3):
        breakers.record(ORDER_EVENT, ok=False)
    breakers._breakers[ORDER_EVENT] = TopicBreaker(failures=3, first_s=0.0, cap_s=0.0)
    add([event(max_attempts=1), event(max_attempts=1, replay_id="rpl_1")])

    relay.run_round(lane=LANE_EVENTS, limit=10)

    waiting, replay = rows()
    assert waiting.state == outbox.STATE_DUE
    assert replay.state == outbox.STATE_QUARANTINED


def test_a_crash_after_publish_sends_again_after_the_lease_with_the_same_id(
    broker: MemoryBroker, make_relay: Callable[..., Relay], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most one extra delivery, never a lost one."""
    relay = make_relay(broker.producer(), lease_s=0.3)
    add([event()])

    def crash(*args: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Relay, "_mark", crash)
        with pytest.raises(RuntimeError, match="killed"):
            relay.run_round(lane=LANE_EVENTS, limit=10)
    assert relay.run_round(lane=LANE_EVENTS, limit=10) == 0  # still leased
    eventually(lambda: relay.run_round(lane=LANE_EVENTS, limit=10) == 1, within_s=3)

    first, second = broker.stored(ORDER_EVENT)
    assert first.message_id == second.message_id
    [row] = rows()
    assert (row.state, row.attempts) == (outbox.STATE_SENT, 2)


def test_an_owner_whose_lease_ran_out_marks_nothing() -> None:
    """The stale owner finalises after the next one claimed: fenced in every kind of end."""
    add([event()])
    stale_token, new_token = uuid.uuid4(), uuid.uuid4()
    [stale] = outbox_rows.claim(lane=1, limit=10, lease_s=0, without=[], token=stale_token)
    [new] = outbox_rows.claim(lane=1, limit=10, lease_s=30, without=[], token=new_token)

    later = outbox_rows.Later(row=stale, delay_ms=0, error="x", sent=True)
    poison = outbox_rows.Poison(row=stale, reason="X", error="x")
    assert outbox_rows.mark_sent([stale], token=stale_token) == 0
    assert outbox_rows.mark_later([later], token=stale_token) == 0
    assert outbox_rows.mark_poison([poison], token=stale_token) == 0

    [row] = rows()
    assert (row.state, row.claim_token, row.attempts) == (outbox.STATE_DUE, new_token, 2)
    assert not QuarantineRow.objects.exists()
    assert outbox_rows.mark_sent([new], token=new_token) == 1
    assert (
        outbox_rows.mark_later([replace(later, row=new)], token=new_token) == 0
    )  # state 1 is final


def test_a_claim_takes_no_more_than_its_limit_and_none_that_another_holds() -> None:
    add([event() for _ in range(50)])
    barrier = threading.Barrier(4, timeout=10)
    claims: list[list[int]] = []

    def claim() -> None:
        try:
            barrier.wait()
            found = outbox_rows.claim(lane=1, limit=10, lease_s=30, without=[], token=uuid.uuid4())
            claims.append([row.id for row in found])
        finally:
            connections.close_all()

    threads = [threading.Thread(target=claim) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert [len(found) for found in claims] == [10] * 4
    assert len({row for found in claims for row in found}) == 40


def test_a_claim_waits_for_no_lock_that_another_sender_holds() -> None:
    add([event() for _ in range(20)])
    locked, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SELECT 1 FROM messaging_outbox ORDER BY id LIMIT 15 FOR UPDATE")
                locked.set()
                assert go_on.wait(10)
        finally:
            connections.close_all()

    thread = threading.Thread(target=hold)
    thread.start()
    assert locked.wait(10)
    try:
        with connection.cursor() as cursor:
            cursor.execute("SET statement_timeout = '2s'")
        found = outbox_rows.claim(lane=1, limit=10, lease_s=30, without=[], token=uuid.uuid4())
    finally:
        go_on.set()
        thread.join(10)
        connection.close()

    assert len(found) == 5


def test_the_oldest_due_rows_go_first_and_lanes_are_apart() -> None:
    events = [event() for _ in range(3)]
    add([*events, timeout_message(), event(lane=LANE_COMPENSATE)])

    found = outbox_rows.claim(lane=1, limit=2, lease_s=30, without=[], token=uuid.uuid4())

    assert [row.event_id for row in found] == [events[0].event_id, events[1].event_id]


def test_doubled_ids_never_share_a_send(make_relay: Callable[..., Relay]) -> None:
    """A batch with two equal ids would be refused whole: they go in two sends."""
    same = evt()
    producer = Producer()
    add([event(same), event(), event(same)])

    make_relay(producer).run_round(lane=LANE_EVENTS, limit=10)

    assert [len(call) for call in producer.calls] == [2, 1]
    assert producer.ids.count(same) == 2
    assert {row.state for row in rows()} == {outbox.STATE_SENT}


def test_batches_are_64_and_below_the_size_limit_suspects_go_alone(
    make_relay: Callable[..., Relay],
) -> None:
    producer = Producer()
    add([event() for _ in range(70)])
    add([event(body=b'"' + b"x" * 90_000 + b'"') for _ in range(3)])
    add([event()])
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE messaging_outbox SET attempts = 3"
            " WHERE id = (SELECT max(id) FROM messaging_outbox)"
        )

    make_relay(producer).run_round(lane=LANE_EVENTS, limit=500)

    assert sorted(len(call) for call in producer.calls) == [1, 1, 8, 64]


def test_delayed_messages_go_one_by_one_at_once(make_relay: Callable[..., Relay]) -> None:
    together = threading.Barrier(4, timeout=5)

    def wait_for_others(messages: Sequence[OutgoingMessage]) -> SendResult:
        together.wait()
        return CONFIRMED

    producer = Producer(wait_for_others)
    wanted = [timeout_message() for _ in range(4)]
    add(wanted)

    make_relay(producer).run_round(lane=LANE_TIMEOUTS, limit=10)

    assert [len(call) for call in producer.calls] == [1, 1, 1, 1]
    assert {m.deliver_at_ms for call in producer.calls for m in call} == {
        m.deliver_at_ms for m in wanted
    }
    assert {row.state for row in rows()} == {outbox.STATE_SENT}


def test_no_send_begins_when_the_lease_is_half_gone_and_untried_rows_lose_no_attempt(
    make_relay: Callable[..., Relay],
) -> None:
    def slow(messages: Sequence[OutgoingMessage]) -> SendResult:
        time.sleep(0.3)
        return CONFIRMED

    producer = Producer(slow)
    add([event() for _ in range(130)])

    make_relay(producer, lease_s=0.5).run_round(lane=LANE_EVENTS, limit=500)

    assert [len(call) for call in producer.calls] == [64]
    assert OutboxRow.objects.filter(state=1).count() == 64
    untried = OutboxRow.objects.filter(state=0)
    assert {(r.attempts, r.claim_token, r.last_error) for r in untried} == {(0, None, "NOT_TRIED")}


def test_stopping_begins_no_further_send(make_relay: Callable[..., Relay]) -> None:
    stop = StopSignal()

    def stop_now(messages: Sequence[OutgoingMessage]) -> SendResult:
        stop.set()
        return CONFIRMED

    producer = Producer(stop_now)
    add([event() for _ in range(130)])

    make_relay(producer, stopping=stop.is_set).run_round(lane=LANE_EVENTS, limit=500)

    assert [len(call) for call in producer.calls] == [64]
    assert OutboxRow.objects.filter(state=1).count() == 64


def test_a_crash_of_the_client_is_unknown_never_lost(make_relay: Callable[..., Relay]) -> None:
    def crash(messages: Sequence[OutgoingMessage]) -> SendResult:
        raise RuntimeError("client bug")

    add([event()])

    make_relay(Producer(crash)).run_round(lane=LANE_EVENTS, limit=10)

    [row] = rows()
    assert (row.state, row.attempts, row.last_error) == (0, 1, "UNKNOWN RuntimeError")


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


def test_timeouts_wait_while_live_order_consumers_lag(broker: MemoryBroker) -> None:
    add([timeout_message()])
    with connection.cursor() as cursor:
        cursor.execute(
            'INSERT INTO messaging_heartbeat (worker_id, role, "group", build, version, started_at,'
            " beat_at, state, detail) VALUES ('w', 'consumer', %s, 1, '', now(),"
            " now() + interval '60 s', 'RUNNING', '{\"lag_s\": 3}')",
            [CG_ORDER_CREATE],
        )
    stop, pulse = StopSignal(), Pulse()
    relay = Relay(broker.producer(), lease_s=10, timeout_ms=1000)
    loop = LaneLoop(relay, lane=LANE_TIMEOUTS)

    def run() -> None:
        try:
            loop.run(stop, pulse)
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        eventually(lambda: pulse.snapshot()[0] is LoopState.WAITING)
        assert broker.stored(ORDER_TIMEOUT) == []
        with connection.cursor() as cursor:
            cursor.execute("UPDATE messaging_heartbeat SET detail = '{\"lag_s\": 0.5}'")
        eventually(lambda: len(broker.stored(ORDER_TIMEOUT)) == 1)
    finally:
        stop.set()
        thread.join(10)
        relay.close()


def test_a_round_is_one_claim_and_one_mark(
    make_relay: Callable[..., Relay], django_assert_num_queries: Callable[..., object]
) -> None:
    add([event() for _ in range(200)])
    relay = make_relay(Producer())

    with django_assert_num_queries(2):  # type: ignore[attr-defined]
        relay.run_round(lane=LANE_EVENTS, limit=500)


def test_the_same_event_twice_is_two_rows_the_inbox_sorts_it_out(
    broker: MemoryBroker, make_relay: Callable[..., Relay]
) -> None:
    same = evt()
    add([event(same)])
    add([event(same)])

    make_relay(broker.producer()).run_round(lane=LANE_EVENTS, limit=10)

    assert [m.message_id for m in broker.stored(ORDER_EVENT)] == [same, same]

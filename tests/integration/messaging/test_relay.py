"""The outbox relay on real PostgreSQL: the ways in which real relays lost, doubled or starved."""

import threading
from collections.abc import Callable, Sequence

import pytest
from django.db import connection, connections, transaction

from messaging import outbox
from messaging.backpressure import TopicBreaker
from messaging.broker.base import FailureClass, OutgoingMessage, SendOutcome, SendResult
from messaging.broker.memory import MemoryBroker, SendFault
from messaging.models import OutboxRow, QuarantineRow
from messaging.outbox import LANE_COMPENSATE, LANE_EVENTS
from messaging.relay import Relay
from messaging.topic_breakers import TopicBreakers
from messaging.topology import INVENTORY_COMPENSATE, ORDER_EVENT
from messaging.worker import StopSignal
from tests.integration.messaging.messages import add, event, eventually, evt
from tests.integration.messaging.sending import CONFIRMED, UNKNOWN, Producer, rows

pytestmark = pytest.mark.django_db(transaction=True)


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


def refusing(bad: str) -> Producer:
    """A broker that takes no batch with this message in it."""
    refuse = SendResult(
        outcome=SendOutcome.DEFINITE_FAILURE, failure=FailureClass.BAD_MESSAGE, code="40006"
    )
    return Producer(lambda ms: refuse if bad in [m.message_id for m in ms] else CONFIRMED)


def test_a_bad_message_in_a_batch_takes_only_itself_to_quarantine(
    make_relay: Callable[..., Relay],
) -> None:
    bad = evt()
    producer = refusing(bad)
    good = [event() for _ in range(9)]
    add([*good[:4], event(bad), *good[4:]])

    make_relay(producer).run_round(lane=LANE_EVENTS, limit=64)

    assert [len(call) for call in producer.calls] == [10] + [1] * 10
    states = {row.event_id: row.state for row in rows()}
    assert states.pop(bad) == outbox.STATE_QUARANTINED
    assert set(states.values()) == {outbox.STATE_SENT}
    assert QuarantineRow.objects.get().message_id == bad


def test_a_bad_message_does_not_keep_a_recovered_topic_closed(
    make_relay: Callable[..., Relay],
) -> None:
    """Case 30's kind: the probe that finds the broker well again is a batch with a bad row."""
    bad = evt()
    producer = refusing(bad)
    breakers = TopicBreakers()
    breakers._breakers[ORDER_EVENT] = TopicBreaker(failures=3)  # its probe's time has come
    add([event(bad), *[event() for _ in range(5)]])

    make_relay(producer, breakers=breakers).run_round(lane=LANE_EVENTS, limit=64)

    states = {row.event_id: row.state for row in rows()}
    assert states.pop(bad) == outbox.STATE_QUARANTINED
    assert set(states.values()) == {outbox.STATE_SENT}
    assert not breakers.is_open(ORDER_EVENT)


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


def test_the_same_event_twice_is_two_rows_the_inbox_sorts_it_out(
    broker: MemoryBroker, make_relay: Callable[..., Relay]
) -> None:
    same = evt()
    add([event(same)])
    add([event(same)])

    make_relay(broker.producer()).run_round(lane=LANE_EVENTS, limit=10)

    assert [m.message_id for m in broker.stored(ORDER_EVENT)] == [same, same]

"""What a sender claims: its own rows, oldest first, in lanes and batches, fenced by its lease."""

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from django.db import connection, connections, transaction

from messaging import outbox, outbox_rows
from messaging.broker.base import OutgoingMessage, SendResult
from messaging.models import OutboxRow, QuarantineRow
from messaging.outbox import LANE_COMPENSATE, LANE_EVENTS, LANE_TIMEOUTS
from messaging.relay import Relay
from tests.integration.messaging.messages import add, event, evt, timeout_message
from tests.integration.messaging.sending import CONFIRMED, Producer, rows

pytestmark = pytest.mark.django_db(transaction=True)


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


def test_a_round_is_one_claim_and_one_mark(
    make_relay: Callable[..., Relay], django_assert_num_queries: Callable[..., object]
) -> None:
    add([event() for _ in range(200)])
    relay = make_relay(Producer())

    with django_assert_num_queries(2):  # type: ignore[attr-defined]
        relay.run_round(lane=LANE_EVENTS, limit=500)

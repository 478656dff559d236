"""What becomes of a send: unknown, failed, lost, dead once more. Never a second effect."""

import pytest

from dlq_admin.replay.worker import run_round
from dlq_admin.states import BatchStatus, ItemStatus
from messaging import quarantine
from messaging.broker.base import FailureClass, SendOutcome, SendResult
from messaging.topology import CG_ORDER_CREATE
from tests.fixtures.dlq import (
    Desk,
    Lost,
    batch_status,
    consume,
    delivered,
    item,
    later,
    one_order,
    publish,
    work_off,
)
from tests.fixtures.sales import FakeProducer, open_sale

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]

UNKNOWN = SendResult(outcome=SendOutcome.UNKNOWN, code="TIMEOUT")
DOWN = SendResult(
    outcome=SendOutcome.DEFINITE_FAILURE, failure=FailureClass.RETRY_LATER, code="UNAVAILABLE"
)


def test_an_unknown_send_is_looked_up_before_it_is_sent_again(desk: Desk, lost: Lost) -> None:
    sale, reservation, dead = lost
    desk.approved(dead)
    run_round()
    (sent,) = publish(FakeProducer(outcomes=[UNKNOWN]))
    run_round()
    assert item(dead).status == ItemStatus.SEND_UNKNOWN
    assert publish() == []  # the outbox does not try again by itself
    assert quarantine.held(group="OUTBOX", message_ids=[reservation.message_id]) == set()

    consume([sent])  # it had been stored after all
    run_round()

    assert item(dead).status == ItemStatus.VERIFIED
    assert item(dead).send_tries == 1
    assert one_order(sale)


def test_an_unknown_send_is_repeated_three_times_then_it_failed_again(
    desk: Desk, lost: Lost
) -> None:
    sale, _, dead = lost
    batch_id = desk.approved(dead)
    run_round()
    for _ in range(3):
        publish(FakeProducer(outcomes=[UNKNOWN]))
        run_round()
        assert item(dead).status == ItemStatus.SEND_UNKNOWN
        run_round()
        assert item(dead).status == ItemStatus.SEND_UNKNOWN  # not before the window has passed
        later(dead)
        run_round()

    assert item(dead).status == ItemStatus.FAILED_AGAIN
    assert item(dead).send_tries == 3
    assert sale.orders() == 0
    assert batch_status(batch_id) == BatchStatus.COMPLETED_WITH_FAILURES


def test_the_broker_is_down_during_a_batch(desk: Desk) -> None:
    sale = open_sale(units=10)
    dead = [desk.dead(sale, one) for one in sale.reserve_all(["ann", "bob", "eve"])]
    batch_id = desk.approved(*dead, canary_size=3)
    run_round()
    publish(FakeProducer(outcomes=[DOWN]))
    run_round()
    assert {item(one).status for one in dead} == {ItemStatus.SEND_FAILED}
    assert batch_status(batch_id) == BatchStatus.CANARY
    for one in dead:
        later(one)
    run_round()
    sent = publish(FakeProducer(outcomes=[UNKNOWN]))  # back, but the answer is lost
    run_round()
    assert {item(one).status for one in dead} == {ItemStatus.SEND_UNKNOWN}
    consume(sent[:2])  # one of the three was not stored
    run_round()
    assert [item(one).status for one in dead].count(ItemStatus.VERIFIED) == 2
    for one in dead:
        later(one)
    work_off(rounds=3)

    assert {item(one).status for one in dead} == {ItemStatus.VERIFIED}
    assert sorted(item(one).send_tries for one in dead) == [2, 2, 3]
    assert batch_status(batch_id) == BatchStatus.COMPLETED
    assert (sale.orders(), sale.available()) == (3, 7)


def test_a_published_replay_without_an_outcome_is_sent_again(desk: Desk, lost: Lost) -> None:
    sale, _, dead = lost
    desk.approved(dead)
    run_round()
    publish()  # and then the broker loses it
    run_round()
    later(dead)
    run_round()
    assert item(dead).status == ItemStatus.SEND_UNKNOWN
    later(dead)
    run_round()
    work_off(rounds=3)

    assert item(dead).status == ItemStatus.VERIFIED
    assert item(dead).send_tries == 2
    assert one_order(sale)


def test_a_replay_that_dies_again_is_told_from_the_original(desk: Desk, lost: Lost) -> None:
    sale, reservation, dead = lost
    desk.approved(dead)
    run_round()
    (sent,) = publish()
    run_round()

    sale.hold(reservation)  # the original dies once more: says nothing about the replay
    run_round()
    assert item(dead).status == ItemStatus.SENT
    quarantine.store(
        [quarantine.entry_of(delivered(sent), group=CG_ORDER_CREATE, reason="STILL_BROKEN")]
    )
    run_round()

    assert item(dead).status == ItemStatus.FAILED_AGAIN
    assert item(dead).status_reason == "STILL_BROKEN"
    assert sale.quarantine_row(reservation)[0] == "OPEN"

"""The scanner's jobs against the real stores; only the broker's answers are given."""

import pytest

from inventory import keys, operations, verbs
from inventory.gate import gate
from messaging.broker.base import FailureClass, SendOutcome, SendResult
from messaging.selectors import GroupLag
from orders.cancel_order import cancel_by_user
from orders.scan import sweep as sweep_module
from orders.scan.gate_ops import GateOpsJob
from orders.scan.overdue import OverdueJob
from orders.scan.pending import GOOD_ROUNDS, PROBE, PendingJob
from orders.scan.release import ReleaseJob
from orders.scan.resend import Resender, create_order_message
from tests.fixtures.sales import (
    FakeProducer,
    end_leases,
    make_overdue,
    open_sale,
    outbox_messages,
    wait_past,
)
from tests.fixtures.sql import execute

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]

UNKNOWN = SendResult(outcome=SendOutcome.UNKNOWN)
REFUSED = SendResult(
    outcome=SendOutcome.DEFINITE_FAILURE, failure=FailureClass.LOAD, code="TOO_MANY_REQUESTS"
)


def _pending_ids(redis_client, sale):
    return set(redis_client.zrange(keys.mq_pending(sale.activity_id), 0, -1))


# -- pending ----------------------------------------------------------------------------------


def test_due_reservations_are_sent_with_the_same_bytes_and_marked(redis_client, pending, producer):
    sale = open_sale(units=200)
    made = sale.reserve_all([f"u{i}" for i in range(150)], sent=False)
    end_leases(redis_client, sale, *made)

    assert pending.run_once() == 150

    assert {m.message_id: m.body for m in producer.sent} == {
        r.message_id: create_order_message(r, send_attempt=1).body for r in made
    }
    assert {m.properties["send_attempt"] for m in producer.sent} == {"2"}
    assert _pending_ids(redis_client, sale) == set()
    assert sale.at_gate(made[0]).mq_status == "MQ_SENT"


def test_what_is_not_due_yet_is_left_alone(pending, producer):
    sale = open_sale()
    sale.reserve("ann", sent=False)

    assert pending.run_once() == 0
    assert producer.sent == []


@pytest.mark.parametrize("answer", [UNKNOWN, REFUSED])
def test_a_send_that_was_not_confirmed_is_tried_later_and_never_released(
    redis_client, pending, producer, answer
):
    sale = open_sale()
    reservation = sale.reserve("ann", sent=False)
    end_leases(redis_client, sale, reservation)
    producer.outcomes = [answer]

    assert pending.run_once() == 0

    found = sale.at_gate(reservation)
    assert (found.status, found.mq_status) == ("RESERVED", "MQ_PENDING")
    assert sale.holders() == {"ann": reservation.reservation_id}
    assert (sale.gate_stock(), outbox_messages("INVENTORY_COMPENSATE_V1")) == (9, [])
    # And: later means later, then the same message again.
    assert pending.run_once() == 0
    assert len(producer.sent) == 1
    end_leases(redis_client, sale, reservation)
    assert pending.run_once() == 1
    assert producer.sent[0].body == producer.sent[1].body


def test_two_scanners_never_send_the_same_reservation(redis_client, pending, producer):
    sale = open_sale(units=50)
    made = sale.reserve_all([f"u{i}" for i in range(50)], sent=False)
    end_leases(redis_client, sale, *made)
    other_producer = FakeProducer()
    other = PendingJob(resender=Resender(other_producer))

    assert (pending.run_once(), other.run_once()) == (50, 0)
    other.close()
    assert other_producer.sent == []


def test_a_troubled_broker_is_asked_carefully_until_it_proves_itself(
    redis_client, pending, producer
):
    sale = open_sale(units=300)
    made = sale.reserve_all([f"u{i}" for i in range(200)], sent=False)
    end_leases(redis_client, sale, *made)
    producer.outcomes = [UNKNOWN] * 4
    pending.run_once()
    end_leases(redis_client, sale, *made)

    assert [pending.run_once() for _ in range(GOOD_ROUNDS)] == [PROBE] * GOOD_ROUNDS
    assert pending.run_once() == 200 - GOOD_ROUNDS * PROBE


def test_an_id_whose_hash_is_gone_leaves_the_queue(redis_client, pending, producer):
    sale = open_sale()
    reservation = sale.reserve("ann", sent=False)
    end_leases(redis_client, sale, reservation)
    redis_client.delete(keys.reservation(sale.activity_id, reservation.reservation_id))

    assert pending.run_once() == 0
    assert (_pending_ids(redis_client, sale), producer.sent) == (set(), [])


# -- sweep ------------------------------------------------------------------------------------


def _ages(monkeypatch, settings, *ages, lag_s=0.0, drain_per_s=0.0):
    settings.SECKILL_SWEEP_AGES_S = list(ages)
    monkeypatch.setattr(sweep_module, "LAG_MARGIN_S", -1.0)
    lag = GroupLag(members=1, lag_s=lag_s, drain_per_s=drain_per_s)
    monkeypatch.setattr(sweep_module, "group_lag", lambda group: lag)


def test_an_unconfirmed_one_is_sent_again_once_for_each_age(monkeypatch, settings, sweep, producer):
    sale = open_sale()
    reservation = sale.reserve("ann")
    _ages(monkeypatch, settings, 0, 1_000)

    assert (sweep.run_once(), sweep.run_once()) == (1, 0)
    assert [m.message_id for m in producer.sent] == [reservation.message_id]
    # When: the next age has come.
    settings.SECKILL_SWEEP_AGES_S = [0, 0]
    assert (sweep.run_once(), sweep.run_once()) == (1, 0)
    assert producer.sent[0].body == producer.sent[1].body


def test_a_lag_that_explains_the_wait_sends_nothing(monkeypatch, settings, sweep, producer):
    sale = open_sale()
    sale.reserve("ann")
    _ages(monkeypatch, settings, 0, lag_s=60.0)

    assert sweep.run_once() == 0
    assert producer.sent == []


def test_young_pending_and_ordered_ones_are_not_sent_again(monkeypatch, settings, sweep, producer):
    sale = open_sale()
    sale.reserve("young")
    _ages(monkeypatch, settings, 10)
    assert sweep.run_once() == 0

    _ages(monkeypatch, settings, 0)
    sale.reserve("pending", sent=False)
    ordered = sale.reserve("ordered")
    sale.deliver(ordered)
    sale.deliver(ordered)  # its confirm was made up for
    sweep.run_once()
    assert [m.keys[0] for m in producer.sent] == [sale.reservations[0].reservation_id]


def test_at_most_a_tenth_of_the_drain_rate_is_sent_again(monkeypatch, settings, sweep, producer):
    sale = open_sale(units=100)
    sale.reserve_all([f"u{i}" for i in range(60)])
    _ages(monkeypatch, settings, 0, drain_per_s=200.0)

    assert [sweep.run_once() for _ in range(4)] == [20, 20, 20, 0]
    assert len({m.message_id for m in producer.sent}) == 60


def test_past_valid_until_without_an_outcome_is_rejected_and_released(sweep, producer):
    sale = open_sale(validity_ms=1)
    sent, unsent = sale.reserve("ann"), sale.reserve("bob", sent=False)
    wait_past(unsent)

    assert sweep.run_once() == 2

    for reservation in (sent, unsent):
        assert sale.outcome(reservation) == ("REJECTED", "RESERVATION_EXPIRED", "DONE")
        assert sale.gate_status(reservation) == "RELEASED"
    assert (sale.gate_stock(), sale.holders(), sale.open_ids()) == (10, {}, set())
    assert len(outbox_messages("ORDER_EVENT_V1", tag="ORDER_REJECTED")) == 2
    assert producer.sent == []


def test_past_valid_until_an_order_that_was_cancelled_is_released(sweep):
    sale = open_sale(validity_ms=1_000)
    reservation = sale.reserve("ann")
    sale.deliver(reservation)
    cancel_by_user(order_id=reservation.order_id, user_id="ann")
    while sale.open_ids():
        sweep.run_once()

    assert sale.outcome(reservation) == ("ORDERED", "", "DONE")
    assert (sale.gate_stock(), sale.holders()) == (10, {})


def test_an_id_without_a_hash_is_dropped_and_its_buyer_left_to_the_reconciler(redis_client, sweep):
    sale = open_sale(validity_ms=1)
    reservation = sale.reserve("ann")
    wait_past(reservation)
    redis_client.delete(keys.reservation(sale.activity_id, reservation.reservation_id))

    assert sweep.run_once() == 1

    assert (sale.open_ids(), sale.outcome(reservation)[0]) == (set(), "NONE")
    assert sale.holders() == {"ann": reservation.reservation_id}


def test_held_ones_do_not_keep_the_others_from_their_turn(monkeypatch, sweep):
    monkeypatch.setattr(sweep_module, "PAGE", 3)
    sale = open_sale(validity_ms=1, units=20)
    made = sale.reserve_all([f"u{i}" for i in range(10)])
    wait_past(made[-1])
    for reservation in made[:5]:
        sale.hold(reservation)

    sweep.run_once()

    assert sale.open_ids() == {r.reservation_id for r in made[:5]}


def test_more_held_ones_than_a_round_looks_at_hide_nothing(monkeypatch, sweep):
    monkeypatch.setattr(sweep_module, "PAGE", 2)
    monkeypatch.setattr(sweep_module, "PAGES_A_ROUND", 2)
    sale = open_sale(validity_ms=1, units=20)
    made = sale.reserve_all([f"u{i}" for i in range(10)])
    wait_past(made[-1])
    in_order = sorted(made, key=lambda r: (r.valid_until_ms, r.reservation_id))
    for reservation in in_order[:7]:
        sale.hold(reservation)

    for _ in range(3):
        sweep.run_once()

    assert sale.open_ids() == {r.reservation_id for r in in_order[:7]}
    # And from the start again: what is not held any more is found.
    execute(
        "UPDATE messaging_quarantine SET status = 'RESOLVED', resolved_at = now(),"
        " resolution = 'test' WHERE message_id = %s",
        in_order[0].message_id,
    )
    for _ in range(3):
        sweep.run_once()
    assert sale.open_ids() == {r.reservation_id for r in in_order[1:7]}


# -- overdue, release ---------------------------------------------------------------------------


def test_orders_overdue_for_longer_than_their_trigger_takes_are_cancelled():
    sale = open_sale()
    overdue, young = sale.reserve("ann"), sale.reserve("bob")
    sale.deliver(overdue, young)
    make_overdue(overdue)
    execute(
        "UPDATE orders_order SET expires_at = clock_timestamp() - interval '5 seconds'"
        " WHERE order_id = %s",
        young.order_id,
    )

    assert (OverdueJob().run_once(), OverdueJob().run_once()) == (1, 0)
    assert (sale.order_status(overdue), sale.order_status(young)) == ("CANCELED", "CREATED")


def test_releases_due_for_over_thirty_seconds_are_driven():
    sale = open_sale(validity_ms=1, units=5)
    old, young = sale.reserve("ann"), sale.reserve("bob")
    wait_past(young)
    sale.deliver(old, young)
    execute(
        "UPDATE orders_reservation SET release_due_at = clock_timestamp() - interval '31 seconds'"
        " WHERE reservation_id = %s",
        old.reservation_id,
    )
    job = ReleaseJob()

    assert (job.run_once(), job.run_once()) == (1, 0)
    assert (sale.outcome(old)[2], sale.outcome(young)[2]) == ("DONE", "DUE")
    assert sale.gate_stock() == 4


# -- gate_ops -----------------------------------------------------------------------------------


def test_an_operators_pause_that_could_not_reach_redis_is_driven_later(settings):
    sale = open_sale()
    execute("UPDATE inventory_activity SET version = 2 WHERE id = %s", sale.activity_id)
    url, settings.REDIS_URL = settings.REDIS_URL, "redis://127.0.0.1:1/0"
    operations.request_pause(activity_id=sale.activity_id, reason="test")
    settings.REDIS_URL = url
    state = gate().run(verbs.gate_state(activity_id=sale.activity_id, sku_id=sale.sku_id))
    assert (state.status, state.stopped) == ("OPEN", False)

    assert (GateOpsJob().run_once(), GateOpsJob().run_once()) == (1, 0)

    state = gate().run(verbs.gate_state(activity_id=sale.activity_id, sku_id=sale.sku_id))
    assert (state.status, state.stopped) == ("PAUSED", True)

"""One test for each rule of docs/protocol.md that consumer, sweep and release keep.

Each is shown to need its rule: with the rule switched off in the code the same story breaks.
"""

from dataclasses import replace

import pytest
import redis

from inventory import keys
from messaging.disposition import DONE
from orders import create_order, reject_order, release
from orders.contracts import create_order_body, create_order_decoder
from orders.create_order import HELD
from orders.scan import sweep as sweep_module
from orders.scan.resend import Resender
from orders.scan.sweep import SweepJob
from orders.states import ReleaseState
from tests.fixtures.sales import (
    FakeProducer,
    open_sale,
    run_projection,
    run_releases,
    wait_past,
)
from tests.fixtures.sql import execute

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]


@pytest.fixture
def sweep():
    job = SweepJob(resender=Resender(FakeProducer()))
    yield job
    job.close()


def _ordered_but_unconfirmed(redis_client):
    """An order whose confirm never came; its valid_until has passed at the gate."""
    sale = open_sale(units=1)
    reservation = sale.reserve("ann")
    sale.deliver(reservation)
    redis_client.zadd(
        keys.open_reservations(sale.activity_id), {reservation.reservation_id: 1}, xx=True
    )
    return sale, reservation


# -- sweep-confirm ------------------------------------------------------------------------------


def test_sweep_confirm_obeys_the_inbox_of_an_ordered_reservation(redis_client, sweep):
    sale, reservation = _ordered_but_unconfirmed(redis_client)

    assert sweep.run_once() == 1

    assert (sale.gate_status(reservation), sale.open_ids()) == ("CONFIRMED", set())
    assert (sale.gate_stock(), sale.available()) == (0, 0)


def test_sweep_confirm_off_would_sell_the_unit_twice(redis_client, sweep, monkeypatch):
    sale, _ = _ordered_but_unconfirmed(redis_client)
    # Off: the sweep releases on its own judgement what is past its deadline.
    known = reject_order.known_reservations
    monkeypatch.setattr(
        sweep_module,
        "known_reservations",
        lambda ids: [_as(one, release_state="DUE") for one in known(ids)],
    )
    monkeypatch.setattr(
        release,
        "known_reservations",
        lambda ids: [_as(one, release_state="DUE") for one in known(ids)],
    )

    sweep.run_once()

    assert sale.gate_stock() > sale.available()


def _as(known, *, release_state):
    return replace(known, release_state=ReleaseState(release_state))


# -- held-consumer ------------------------------------------------------------------------------


def test_held_consumer_rejects_nothing_that_has_an_open_row():
    sale = open_sale(validity_ms=1)
    reservation = sale.reserve("ann")
    sale.hold(reservation)
    wait_past(reservation)

    assert sale.deliver(reservation) == [HELD]

    assert (sale.outcome(reservation)[0], sale.gate_stock()) == ("NONE", 9)
    assert sale.quarantine_row(reservation) == ("OPEN", 2)


def test_held_consumer_binds_the_sweep_as_well(sweep):
    sale = open_sale(validity_ms=1)
    reservation = sale.reserve("ann")
    sale.hold(reservation)
    wait_past(reservation)

    sweep.run_once()

    assert (sale.outcome(reservation)[0], sale.open_ids()) == ("NONE", {reservation.reservation_id})
    # And: a row that appears between the sweep's look and its transaction is seen there.
    message = create_order_decoder.decode(create_order_body(reservation))
    reject_order.reject_expired([message])
    assert sale.outcome(reservation)[0] == "NONE"


def test_held_consumer_off_would_reject_what_its_ticket_is_about_to_end(monkeypatch):
    sale = open_sale(validity_ms=1)
    reservation = sale.reserve("ann")
    sale.hold(reservation)
    wait_past(reservation)
    monkeypatch.setattr(create_order.quarantine, "held", lambda **kwargs: set())

    sale.deliver(reservation)

    assert sale.outcome(reservation) == ("REJECTED", "RESERVATION_EXPIRED", "DUE")


# -- extension-held -------------------------------------------------------------------------------


def test_extension_row_decides_in_place_of_valid_until_for_consumer_and_sweep(sweep):
    sale = open_sale(validity_ms=1)
    reservation = sale.reserve("ann")
    sale.hold(reservation)
    wait_past(reservation)
    execute(
        "INSERT INTO orders_extension (reservation_id, valid_until, reason, granted_by)"
        " VALUES (%s, clock_timestamp() + interval '1 hour', 'replay', 'lead')",
        reservation.reservation_id,
    )
    execute("UPDATE messaging_quarantine SET status = 'RESOLVED', resolved_at = now()")

    sweep.run_once()
    assert sale.outcome(reservation)[0] == "NONE"

    assert sale.deliver(reservation) == [DONE]
    assert sale.order_status(reservation) == "CREATED"


def test_extension_off_would_reject_the_replay(monkeypatch):
    sale = open_sale(validity_ms=1)
    reservation = sale.reserve("ann")
    wait_past(reservation)
    execute(
        "INSERT INTO orders_extension (reservation_id, valid_until, reason, granted_by)"
        " VALUES (%s, clock_timestamp() + interval '1 hour', 'replay', 'lead')",
        reservation.reservation_id,
    )
    monkeypatch.setattr(create_order, "valid_extensions", lambda ids, now: set())

    sale.deliver(reservation)

    assert sale.outcome(reservation)[:2] == ("REJECTED", "RESERVATION_EXPIRED")


# -- buyers-decide -------------------------------------------------------------------


def test_buyers_decide_whether_units_go_back_hash_or_no_hash(redis_client):
    sale = open_sale(validity_ms=1)
    first, second = sale.reserve("ann"), sale.reserve("bob")
    wait_past(second)
    sale.deliver(first, second)
    # Given: one hash has expired, and the other's buyer holds another reservation meanwhile.
    redis_client.delete(keys.reservation(sale.activity_id, first.reservation_id))
    redis_client.hset(keys.buyers(sale.activity_id, sale.sku_id), "bob", "rsv_another")

    assert run_releases() == [DONE, DONE]

    assert (sale.gate_stock(), sale.holders()) == (9, {"bob": "rsv_another"})
    assert sale.outcome(first)[2] == sale.outcome(second)[2] == "DONE"


def test_buyers_decide_makes_a_release_repeatable_after_any_crash(redis_client):
    sale = open_sale(validity_ms=1)
    reservation = sale.reserve("ann")
    wait_past(reservation)
    sale.deliver(reservation)
    run_releases()
    # When: DONE was never written (the process died between gate and PostgreSQL).
    execute("UPDATE orders_reservation SET release_state = 'DUE', released_at = NULL")

    assert run_releases() == [DONE]
    assert sale.gate_stock() == 10


def test_buyers_decide_answers_retry_while_the_gate_rebuilds(redis_client):
    sale = open_sale(validity_ms=1)
    reservation = sale.reserve("ann")
    wait_past(reservation)
    sale.deliver(reservation)
    gate_key = keys.gate(sale.activity_id, sale.sku_id)
    redis_client.hset(gate_key, "status", "REBUILDING")

    assert run_releases() == [DONE]  # acked, deferred
    assert (sale.gate_stock(), sale.outcome(reservation)[2]) == (9, "DUE")

    redis_client.hset(gate_key, "status", "CLOSED")
    release.release_reservations([reservation.reservation_id])
    assert (sale.gate_stock(), sale.outcome(reservation)[2]) == (10, "DONE")


# -- rejected-release ----------------------------------------------------------------


def _done_but_open_again(redis_client):
    """An older copy of Redis brought back a reservation whose release is DONE in PostgreSQL."""
    sale = open_sale(validity_ms=1)
    reservation = sale.reserve("ann")
    wait_past(reservation)
    copy = {key: redis_client.dump(key) for key in _binary(redis_client).keys("*")}
    sale.deliver(reservation)
    run_releases()
    assert sale.gate_stock() == 10
    binary = _binary(redis_client)
    binary.flushdb()
    for key, value in copy.items():
        binary.restore(key, 0, value)
    return sale, reservation


def _binary(client):
    return redis.Redis(
        connection_pool=redis.ConnectionPool(
            **{**client.connection_pool.connection_kwargs, "decode_responses": False}
        )
    )


def test_rejected_release_frees_what_is_open_again_though_done(redis_client, sweep):
    sale, reservation = _done_but_open_again(redis_client)
    assert (sale.gate_stock(), sale.outcome(reservation)[2]) == (9, "DONE")

    assert sweep.run_once() == 1

    assert (sale.gate_stock(), sale.holders(), sale.open_ids()) == (10, {}, set())


def test_rejected_release_off_would_leave_it_open_for_ever(redis_client, sweep, monkeypatch):
    sale, reservation = _done_but_open_again(redis_client)
    real = sweep_module.release_reservations
    monkeypatch.setattr(sweep_module, "release_reservations", lambda ids, also_done: real(ids))

    assert [sweep.run_once() for _ in range(3)] == [0, 0, 0]
    assert (sale.gate_stock(), sale.open_ids()) == (9, {reservation.reservation_id})


# -- a confirm that was answered RETRY ------------------------------------------------------------


def test_the_sweep_makes_up_for_a_confirm_answered_retry(redis_client, sweep):
    sale, reservation = _ordered_but_unconfirmed(redis_client)
    gate_key = keys.gate(sale.activity_id, sale.sku_id)
    redis_client.hset(gate_key, "status", "REBUILDING")
    assert run_projection() == [DONE]
    assert sweep.run_once() == 0

    redis_client.hset(gate_key, "status", "CLOSED")

    assert sweep.run_once() == 1
    assert sale.gate_status(reservation) == "CONFIRMED"

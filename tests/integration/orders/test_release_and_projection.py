"""PostgreSQL's results reach the gate: releases and confirms, in every order of events."""

import json
from contextlib import contextmanager

import pytest
import redis
from django.conf import settings

from inventory import keys, turns
from inventory.errors import GateScriptError, GateUnavailable
from inventory.gate import ONE_SERVER, Gate
from messaging.disposition import DONE, DUPLICATE, rejected
from messaging.errors import TransientError
from messaging.topology import ORDER_EVENT
from orders import projection, release
from orders.cancel_order import cancel_by_user
from orders.contracts import create_order_decoder
from orders.handlers import (
    ORDER_CREATE_HANDLER,
    PROJECTION_HANDLER,
    RELEASE_HANDLER,
    OrderCreateHandler,
)
from tests.fixtures.sales import (
    create_message,
    open_sale,
    outbox_messages,
    run_projection,
    run_releases,
    wait_past,
)
from tests.fixtures.sql import execute, rows

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]


@contextmanager
def listening(sale):
    """Yield a function that waits for the next change published to the sale's buyers."""
    client = redis.Redis.from_url(settings.REDIS_URL, decode_responses=True)
    with client.pubsub(ignore_subscribe_messages=True) as listener:
        listener.subscribe(keys.events_channel(sale.activity_id))
        listener.get_message(timeout=5)
        yield lambda: json.loads(listener.get_message(timeout=5)["data"])
    client.close()


def _rejected():
    sale = open_sale(validity_ms=1)
    reservation = sale.reserve("ann")
    wait_past(reservation)
    sale.deliver(reservation)
    return sale, reservation


def test_a_reject_gives_its_unit_back_and_frees_the_buyer():
    sale, reservation = _rejected()
    assert (sale.gate_stock(), sale.holders()) == (9, {"ann": reservation.reservation_id})

    assert run_releases() == [DONE]

    assert (sale.gate_stock(), sale.holders(), sale.open_ids()) == (10, {}, set())
    assert sale.outcome(reservation) == ("REJECTED", "RESERVATION_EXPIRED", "DONE")
    assert sale.gate_status(reservation) == "RELEASED"
    assert rows("SELECT released_at IS NOT NULL FROM orders_reservation") == [(True,)]


def test_a_release_that_is_done_is_only_acked():
    sale, _ = _rejected()
    run_releases()

    assert run_releases() == [DUPLICATE]
    assert sale.gate_stock() == 10


def test_user_quantity_and_restock_come_from_postgresql_not_from_the_message():
    sale = open_sale(units=10, limit_per_user=2)
    reservation = sale.reserve("ann", quantity=2)
    sale.deliver(reservation)
    cancel_by_user(order_id=reservation.order_id, user_id="ann")
    execute(
        "UPDATE messaging_outbox SET payload = replace(replace(payload, '\"quantity\":2',"
        ' \'"quantity":9\'), \'"user_id":"ann"\', \'"user_id":"eve"\')'
        " WHERE tag = 'RELEASE_RESERVATION'"
    )

    assert run_releases() == [DONE]
    assert (sale.gate_stock(), sale.holders()) == (10, {})


def test_a_lost_gate_defers_the_release_and_the_row_stays_due(redis_client):
    sale, reservation = _rejected()
    redis_client.delete(keys.gate(sale.activity_id, sale.sku_id))

    assert run_releases() == [DONE]
    assert sale.outcome(reservation)[2] == "DUE"


def test_an_unreachable_redis_stops_the_group_and_decides_nothing(monkeypatch):
    sale, reservation = _rejected()

    class Away:
        def run(self, call):
            raise GateUnavailable("time-out")

    monkeypatch.setattr(release, "gate", Away)
    with pytest.raises(TransientError):
        run_releases()
    assert sale.outcome(reservation)[2] == "DUE"


@pytest.fixture
def shards(monkeypatch):
    """The real Redis plays a cluster; sales in the set are on a shard that is away."""
    away: set[int] = set()

    class Cluster(Gate):
        def _sale(self, key):
            return int(key.split("{")[1].split("}")[0])

        def server_of(self, key):
            return "dead" if self._sale(key) in away else "alive"

        def answering(self):
            return ["alive"]

        def run(self, call):
            if call.keys and self._sale(call.keys[0]) in away:
                raise GateUnavailable("connection refused")
            return super().run(call)

    made = Cluster(url=settings.REDIS_URL, cluster=False)
    for module in (release, projection, turns):
        monkeypatch.setattr(module, "gate", lambda: made)
    yield away
    made.close()


def test_a_shard_that_is_away_holds_up_no_sale_of_another(shards):
    """Its releases stay DUE for the scanner, its confirms are left to the sweep."""
    (hit, hits), (other, others) = _rejected(), _rejected()
    shards.add(hit.activity_id)

    assert run_releases() == [DONE, DONE]

    assert (hit.outcome(hits)[2], other.outcome(others)[2]) == ("DUE", "DONE")
    with listening(other) as next_change:
        assert run_projection() == [DONE, DONE]
        assert next_change()["reservation_id"] == others.reservation_id
    shards.clear()
    assert release.release_reservations([hits.reservation_id]).released == {hits.reservation_id}
    assert (hit.gate_stock(), hit.outcome(hits)[2]) == (10, "DONE")


def test_orders_of_other_shards_are_announced(shards):
    hit, other = open_sale(), open_sale()
    hits, others = hit.reserve("ann"), other.reserve("bob")
    shards.add(hit.activity_id)
    handler = OrderCreateHandler(create_order_decoder, announce=projection.Announcer())

    assert handler.handle([create_message(hits), create_message(others)]) == [DONE, DONE]

    assert (hit.gate_status(hits), other.gate_status(others)) == ("RESERVED", "CONFIRMED")


@pytest.mark.parametrize("handler", [RELEASE_HANDLER, PROJECTION_HANDLER])
def test_the_probe_of_a_group_that_needs_redis_asks_redis(handler, settings):
    assert handler.probe() is None
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    with pytest.raises(GateUnavailable):
        handler.probe()


def test_a_crash_between_gate_and_done_gives_back_once(monkeypatch):
    sale, reservation = _rejected()

    def crash(point):
        assert point == "release.after_gate"
        raise RuntimeError(point)

    monkeypatch.setattr(release.faultpoint, "hit", crash)
    with pytest.raises(RuntimeError):
        run_releases()
    assert (sale.gate_stock(), sale.outcome(reservation)[2]) == (10, "DUE")
    monkeypatch.undo()

    assert run_releases() == [DONE]
    assert (sale.gate_stock(), sale.outcome(reservation)[2]) == (10, "DONE")


def test_a_release_nobody_asked_for_is_quarantined():
    sale, _ = _rejected()
    messages = outbox_messages("INVENTORY_COMPENSATE_V1")
    execute("DELETE FROM orders_reservation")

    assert [d.reason for d in RELEASE_HANDLER.handle(messages)] == ["RELEASE_NOT_DUE"]
    assert sale.gate_stock() == 9


def test_the_event_of_an_order_confirms_it_at_the_gate():
    sale = open_sale()
    reservation = sale.reserve("ann")
    sale.deliver(reservation)

    assert run_projection() == [DONE]

    assert (sale.gate_status(reservation), sale.open_ids()) == ("CONFIRMED", set())
    assert run_projection() == [DONE]


def test_a_confirm_after_the_release_changes_nothing():
    sale = open_sale()
    reservation = sale.reserve("ann")
    sale.deliver(reservation)
    cancel_by_user(order_id=reservation.order_id, user_id="ann")
    run_releases()

    assert run_projection() == [DONE, DONE]

    assert (sale.gate_status(reservation), sale.gate_stock()) == ("RELEASED", 10)
    assert sale.holders() == {}


def test_a_gate_being_rebuilt_answers_retry_and_the_event_is_acked(redis_client):
    sale = open_sale()
    reservation = sale.reserve("ann")
    sale.deliver(reservation)
    redis_client.hset(keys.gate(sale.activity_id, sale.sku_id), "status", "REBUILDING")

    assert run_projection() == [DONE]
    assert sale.open_ids() == {reservation.reservation_id}


def test_every_change_is_published_with_its_version():
    sale = open_sale()
    reservation = sale.reserve("ann")
    with listening(sale) as next_change:
        sale.deliver(reservation)
        cancel_by_user(order_id=reservation.order_id, user_id="ann")
        assert len(outbox_messages(ORDER_EVENT)) == 2

        run_projection()

        changes = [next_change() for _ in range(2)]
    assert changes == [
        {
            "reservation_id": reservation.reservation_id,
            "order_id": reservation.order_id,
            "status": status,
            "reason": reason,
            "version": version,
        }
        for status, reason, version in [("ORDERED", "", 1), ("CANCELED", "USER", 2)]
    ]


def test_a_new_order_is_announced_at_once_and_its_event_says_it_no_second_time():
    sale = open_sale()
    reservation = sale.reserve("ann")
    with listening(sale) as next_change:
        assert ORDER_CREATE_HANDLER.handle([create_message(reservation)]) == [DONE]

        assert (sale.gate_status(reservation), sale.open_ids()) == ("CONFIRMED", set())
        assert next_change() == {
            "reservation_id": reservation.reservation_id,
            "order_id": reservation.order_id,
            "status": "ORDERED",
            "reason": "",
            "version": 1,
        }
        cancel_by_user(order_id=reservation.order_id, user_id="ann")
        assert run_projection() == [DONE, DONE]
        assert next_change()["version"] == 2


@pytest.mark.parametrize("failure", [GateUnavailable, GateScriptError, KeyError])
def test_without_redis_orders_are_made_and_their_events_confirm_them(monkeypatch, failure):
    sale = open_sale()
    first, second = sale.reserve("ann"), sale.reserve("bob")
    tried = []

    class Away:
        def server_of(self, key):
            return ONE_SERVER

        def run(self, call):
            tried.append(call)
            raise failure("away")

    monkeypatch.setattr(projection, "gate", Away)
    handler = OrderCreateHandler(create_order_decoder, announce=projection.Announcer())
    assert handler.handle([create_message(first)]) == [DONE]
    assert handler.handle([create_message(second)]) == [DONE]
    assert len(tried) == 1  # a Redis that does not answer costs a time-out now and then, no more
    assert sale.gate_status(first) == sale.gate_status(second) == "RESERVED"
    monkeypatch.undo()

    assert run_projection() == [DONE, DONE]

    assert sale.gate_status(first) == sale.gate_status(second) == "CONFIRMED"


def test_rejects_are_not_announced_as_orders():
    sale = open_sale(units=1)
    reservation = sale.reserve("ann")
    execute("UPDATE inventory_stock SET available = 0")
    told = []
    handler = OrderCreateHandler(create_order_decoder, announce=told.append)

    (decision,) = handler.handle([create_message(reservation)])

    assert decision == rejected("NO_FINAL_STOCK")
    assert told == [[]]


def test_a_reject_is_published_as_expired():
    sale, reservation = _rejected()
    with listening(sale) as next_change:
        run_projection()
        change = next_change()
    assert (change["reservation_id"], change["status"]) == (reservation.reservation_id, "EXPIRED")

"""Held reservations: extension, COMPENSATE, and the end a day after the sale."""

import pytest
from django.core.exceptions import PermissionDenied

from inventory.errors import GateUnavailable
from inventory.gate import gate
from messaging.disposition import DONE, DUPLICATE
from orders.compensate import compensate
from orders.create_order import HELD
from orders.errors import TicketRefused
from orders.extension import grant_extension
from orders.scan.held import HeldJob
from tests.fixtures.rebuild import assert_at_rest, operator
from tests.fixtures.sales import (
    at_once,
    open_sale,
    outbox_messages,
    run_projection,
    run_releases,
    wait_past,
)
from tests.fixtures.sql import execute, one, rows

pytestmark = pytest.mark.django_db


@pytest.fixture
def _django_db_helper(stores):
    """Real commits."""


@pytest.fixture
def user():
    return operator("orders.grant_extension", "orders.compensate_reservation")


def held_sale(*, validity_ms=1):
    sale = open_sale(units=2, validity_ms=validity_ms)
    reservation = sale.reserve("ann")
    sale.hold(reservation)
    if validity_ms == 1:
        wait_past(reservation)
    return sale, reservation


def grant(reservation, user, **changes):
    wish = {"seconds": 60, "reason": "replay", "user": user} | changes
    return grant_extension(reservation_id=reservation.reservation_id, **wish)


def test_an_extension_lets_the_replay_become_an_order(user):
    sale, reservation = held_sale()
    assert sale.deliver(reservation) == [HELD]

    until = grant(reservation, user)

    assert sale.deliver(reservation) == [DONE]
    run_projection()
    assert (sale.order_status(reservation), sale.quarantine_row(reservation)[0]) == (
        "CREATED",
        "RESOLVED",
    )
    row = rows("SELECT valid_until, reason, granted_by FROM orders_extension")
    assert row == [(until, "replay", "olga")]
    assert_at_rest(sale)


def test_an_extension_ends_too():
    sale, reservation = held_sale()
    user = operator("orders.grant_extension")
    grant(reservation, user, seconds=1)
    execute("UPDATE orders_extension SET valid_until = now() - interval '1 s'")

    assert sale.deliver(reservation) == [HELD]
    assert sale.order_status(reservation) == "NONE"


def test_a_longer_extension_is_never_shortened(user):
    _, reservation = held_sale()
    long = grant(reservation, user, seconds=3600)

    grant(reservation, user, seconds=1)

    assert one("SELECT valid_until FROM orders_extension") == long


@pytest.mark.parametrize("seconds", [0, 86_401])
def test_an_extension_is_bounded(user, seconds):
    _, reservation = held_sale()
    with pytest.raises(TicketRefused, match="lasts"):
        grant(reservation, user, seconds=seconds)


def test_nobody_extends_or_compensates_without_permission_reason_or_ticket(user):
    sale, reservation = held_sale()
    free = sale.reserve("bob")
    eve = operator(name="eve")
    with pytest.raises(PermissionDenied):
        grant(reservation, eve)
    with pytest.raises(PermissionDenied):
        compensate(reservation_id=reservation.reservation_id, reason="x", user=eve)
    with pytest.raises(TicketRefused, match="reason"):
        grant(reservation, user, reason=" ")
    with pytest.raises(TicketRefused, match="reason"):
        compensate(reservation_id=reservation.reservation_id, reason="", user=user)
    with pytest.raises(TicketRefused, match="not held"):
        grant(free, user)
    with pytest.raises(TicketRefused, match="not held"):
        compensate(reservation_id=free.reservation_id, reason="x", user=user)

    assert one("SELECT count(*) FROM orders_extension") == 0
    assert (sale.outcome(reservation)[0], sale.gate_stock()) == ("NONE", 0)


def test_compensate_rejects_releases_and_tells(user):
    sale, reservation = held_sale(validity_ms=300_000)

    compensate(reservation_id=reservation.reservation_id, reason="bug", user=user)

    assert sale.outcome(reservation) == ("REJECTED", "COMPENSATED", "DONE")
    assert (sale.gate_stock(), sale.holders(), sale.open_ids()) == (2, {}, set())
    assert [m.tag for m in outbox_messages("ORDER_EVENT_V1")] == ["ORDER_REJECTED"]
    run_releases()  # its own message comes, too: nothing more happens
    assert sale.gate_stock() == 2
    assert sale.deliver(reservation) == [DUPLICATE]  # and so does a late copy
    with pytest.raises(TicketRefused):
        compensate(reservation_id=reservation.reservation_id, reason="bug", user=user)
    run_projection()
    assert_at_rest(sale)


def test_a_ticket_and_the_message_itself_at_once_have_one_outcome(user):
    for number in range(5):
        sale = open_sale(units=2)
        reservation = sale.reserve(f"ann{number}")
        sale.hold(reservation)

        at_once(
            [
                lambda r=reservation: compensate(
                    reservation_id=r.reservation_id, reason="bug", user=user
                ),
                lambda s=sale, r=reservation: s.deliver(r),
            ]
        )

        outcome = sale.outcome(reservation)[:2]
        assert outcome in {("ORDERED", ""), ("REJECTED", "COMPENSATED")}
        run_releases()
        run_projection()
        assert_at_rest(sale)


def test_a_day_after_the_sale_a_held_reservation_is_ended(user):
    sale, reservation = held_sale()
    job = HeldJob()
    execute(
        "UPDATE inventory_activity SET ends_at = now() - interval '23 hours'"
        ", starts_at = now() - interval '2 days'"
    )
    assert job.run_once() == 0
    execute("UPDATE inventory_activity SET ends_at = now() - interval '25 hours'")
    grant(reservation, user)
    assert job.run_once() == 0  # a person has just decided otherwise
    execute("DELETE FROM orders_extension")

    assert job.run_once() == 1

    assert sale.outcome(reservation)[:2] == ("REJECTED", "RESERVATION_EXPIRED")
    assert sale.quarantine_row(reservation)[0] == "RESOLVED"
    run_releases()
    assert (sale.gate_stock(), sale.holders()) == (2, {})
    assert job.run_once() == 0
    run_projection()
    assert_at_rest(sale)


def test_a_row_that_does_not_tell_whose_it_is_stays_and_does_not_block_the_others(user):
    sale, reservation = held_sale()
    other = sale.reserve("bob")
    sale.hold(other)
    execute(
        "UPDATE messaging_quarantine SET user_id = NULL WHERE message_id = %s",
        reservation.message_id,
    )
    execute(
        "UPDATE inventory_activity SET ends_at = now() - interval '25 hours'"
        ", starts_at = now() - interval '2 days'"
    )

    assert HeldJob().run_once() == 1

    assert sale.quarantine_row(reservation)[0] == "OPEN"
    assert sale.outcome(other)[1] == "RESERVATION_EXPIRED"
    with pytest.raises(TicketRefused, match="does not tell"):
        compensate(reservation_id=reservation.reservation_id, reason="x", user=user)


def test_redis_being_away_does_not_undo_a_compensation(user, monkeypatch):
    sale, reservation = held_sale()

    def away(call):
        raise GateUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(gate(), "run", away)
        compensate(reservation_id=reservation.reservation_id, reason="bug", user=user)
    assert sale.outcome(reservation) == ("REJECTED", "COMPENSATED", "DUE")

    run_releases()

    assert (sale.gate_stock(), sale.outcome(reservation)[2]) == (2, "DONE")

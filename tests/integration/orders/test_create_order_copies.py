"""A reservation delivered again, late or under another id: one order, one outcome."""

from dataclasses import replace

import msgspec
import pytest

from messaging.disposition import DONE, DUPLICATE
from messaging.disposition import quarantine as to_quarantine
from messaging.topology import INVENTORY_COMPENSATE, ORDER_EVENT
from orders.create_order import HELD, OrderConflict
from orders.reject_order import ReservationConflict
from tests.fixtures.sales import open_sale, outbox_messages, wait_past, with_ids
from tests.fixtures.sql import one, rows

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]


def test_a_known_message_is_acked_and_changes_nothing():
    sale = open_sale()
    reservation = sale.reserve("ann")
    sale.deliver(reservation)
    before = one("SELECT count(*) FROM messaging_outbox")

    assert sale.deliver(reservation, attempt=2) == [DUPLICATE]

    assert (sale.orders(), sale.available()) == (1, 9)
    assert one("SELECT count(*) FROM messaging_outbox") == before


def test_copies_inside_one_batch_make_one_order():
    sale = open_sale()
    reservation = sale.reserve("ann")

    assert sale.deliver(reservation, reservation, reservation) == [DONE, DUPLICATE, DUPLICATE]

    assert (sale.orders(), sale.available()) == (1, 9)


def test_a_redelivery_makes_up_for_a_confirm_that_was_lost():
    sale = open_sale()
    reservation = sale.reserve("ann")
    sale.deliver(reservation)
    assert sale.gate_status(reservation) == "RESERVED"

    sale.deliver(reservation, attempt=2)

    assert sale.gate_status(reservation) == "CONFIRMED"
    assert sale.open_ids() == set()


def test_a_redelivery_arms_an_unfinished_release_again():
    sale = open_sale(validity_ms=1)
    reservation = sale.reserve("ann")
    wait_past(reservation)
    sale.deliver(reservation)
    assert len(outbox_messages(INVENTORY_COMPENSATE)) == 1

    assert sale.deliver(reservation, attempt=2) == [DUPLICATE]

    first, again = (msgspec.json.decode(m.body) for m in outbox_messages(INVENTORY_COMPENSATE))
    assert first["message_id"] != again["message_id"]
    assert again["reservation_id"] == reservation.reservation_id
    assert len(outbox_messages(ORDER_EVENT)) == 1


def test_the_same_reservation_under_another_message_id_is_a_duplicate():
    sale = open_sale()
    reservation = sale.reserve("ann")
    sale.deliver(reservation)
    copy = with_ids(reservation, message=True)

    with pytest.raises(OrderConflict):
        sale.deliver(copy, sale.reserve("bob"))
    assert sale.deliver(copy) == [DUPLICATE]

    assert (sale.orders(), sale.available(), sale.ledger_sum()) == (1, 9, 9)
    assert sale.outcome(reservation) == ("ORDERED", "", "NONE")


def test_a_late_copy_under_another_message_id_never_releases_the_order():
    sale = open_sale()
    reservation = sale.reserve("ann")
    sale.deliver(reservation)
    late = replace(with_ids(reservation, message=True), valid_until_ms=1_700_000_000_000)

    with pytest.raises(ReservationConflict):
        sale.deliver(late, sale.reserve("bob"))
    assert sale.deliver(late) == [DUPLICATE]

    assert sale.outcome(reservation) == ("ORDERED", "", "NONE")
    assert outbox_messages(INVENTORY_COMPENSATE) == []


def test_case_36_a_second_delivery_with_another_order_id_keeps_the_first_ones():
    sale = open_sale()
    reservation = sale.reserve("ann")
    sale.deliver(reservation)
    renamed = replace(
        with_ids(reservation, message=True), order_id=f"ord_{reservation.order_id[4:-1]}0"
    )

    sale.deliver(reservation)
    sale.deliver(renamed)

    assert rows("SELECT order_id FROM orders_order") == [(reservation.order_id,)]


def test_a_duplicate_on_an_empty_stock_is_no_reject():
    sale = open_sale(units=1)
    reservation = sale.reserve("ann")
    sale.deliver(reservation)
    assert sale.available() == 0

    assert sale.deliver(with_ids(reservation, message=True)) == [DUPLICATE]

    assert sale.outcome(reservation) == ("ORDERED", "", "NONE")


def test_an_id_older_than_the_inbox_is_refused():
    sale = open_sale()
    reservation = sale.reserve("ann")
    old = replace(reservation, message_id=f"evt_01{'A' * 24}")

    assert sale.deliver(old) == [to_quarantine("OLDER_THAN_INBOX")]
    assert one("SELECT count(*) FROM messaging_inbox") == 0


def test_a_copy_in_time_makes_the_order_and_settles_the_quarantine_row():
    sale = open_sale()
    reservation = sale.reserve("ann")
    sale.hold(reservation)

    assert sale.deliver(reservation) == [DONE]
    assert sale.quarantine_row(reservation) == ("RESOLVED", 1)


def test_a_late_copy_of_a_held_message_is_one_more_occurrence():
    sale = open_sale(validity_ms=1)
    reservation = sale.reserve("ann")
    sale.hold(reservation)
    wait_past(reservation)

    assert sale.deliver(reservation) == [HELD]

    assert sale.quarantine_row(reservation) == ("OPEN", 2)
    assert sale.outcome(reservation)[0] == "NONE"
    assert one("SELECT count(*) FROM messaging_inbox") == 0

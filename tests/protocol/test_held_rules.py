"""One test for each rule of docs/protocol.md that keeps held reservations over a rebuild.

Each story is told twice where it can be: as it ends, and as it ends with the rule switched off.
"""

from dataclasses import replace

import pytest

from orders import extension
from orders.compensate import compensate
from orders.errors import TicketRefused
from orders.extension import grant_extension
from orders.rebuild import transaction
from tests.fixtures.rebuild import (
    TICKETS,
    assert_at_rest,
    end,
    held,
    operator,
    ordered,
    promised_too_much,
    rebuild,
    sweep_all,
    until_read,
)
from tests.fixtures.sales import open_sale, wait_past
from tests.fixtures.sql import one

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_wait")]


@pytest.fixture
def _django_db_helper(stores):
    """Real commits."""


# -- rebuild-held-buyers ----------------------------------------------------------------


def test_rebuild_writes_held_buyers_so_that_a_ticket_can_free_them(store):
    sale, reservation = held()
    store.lose()
    done = rebuild(sale)
    assert (done.found.held, sale.gate_stock()) == ({sale.sku_id: 1}, 1)
    assert sale.holders() == {"ann": reservation.reservation_id}

    compensate(reservation_id=reservation.reservation_id, reason="lost", user=operator(*TICKETS))

    assert sale.outcome(reservation) == ("REJECTED", "COMPENSATED", "DONE")
    assert sale.gate_stock() == 2
    assert_at_rest(sale)


def test_rebuild_held_buyers_off_loses_the_unit(store):
    sale, reservation = held()
    store.lose()
    run, plan = until_read(sale)
    end(run, replace(plan, gates=tuple(replace(g, buyers={}) for g in plan.gates)))

    compensate(reservation_id=reservation.reservation_id, reason="lost", user=operator(*TICKETS))

    assert (sale.gate_stock(), sale.available()) == (1, 2)


# -- rebuild-debt ----------------------------------------------------------------


def _two_reservations_for_one_unit(store):
    sale = open_sale(units=1)
    store.copy()
    first = sale.reserve("ann")
    sale.hold(first)
    store.come_back()
    second = sale.reserve("bob")
    sale.hold(second)
    return sale, first, second


def test_rebuild_ends_held_reservations_that_nobody_can_honour_any_more(store):
    sale, first, second = _two_reservations_for_one_unit(store)

    done = rebuild(sale, note_loss=True)

    (broken,) = done.found.broken
    assert (broken.reservation_id, broken.reason) == (second.reservation_id, "NO_FINAL_STOCK")
    assert sale.outcome(second) == ("REJECTED", "NO_FINAL_STOCK", "DONE")
    assert sale.quarantine_row(second)[0] == "RESOLVED"
    assert (sale.gate_stock(), sale.holders()) == (0, {"ann": first.reservation_id})
    kept = one("SELECT found->'broken'->0->>'user_id' FROM inventory_rebuildrun")
    assert kept == "bob"
    sweep_all(sale)
    assert_at_rest(sale)


def test_rebuild_debt_off_writes_a_stock_below_zero(store, monkeypatch):
    sale, _, _ = _two_reservations_for_one_unit(store)
    monkeypatch.setattr(transaction, "_divide", lambda held, **_: (list(held), []))

    rebuild(sale, note_loss=True)

    assert sale.gate_stock() < 0


def test_rebuild_ends_a_held_reservation_whose_buyer_has_an_order(store):
    sale = open_sale(units=3)
    store.copy()
    (first,) = ordered(sale, "ann")
    store.come_back()
    second = sale.reserve("ann")
    sale.hold(second)

    done = rebuild(sale, note_loss=True)

    assert [b.reason for b in done.found.broken] == ["DUPLICATE_ORDER"]
    assert (sale.gate_stock(), sale.holders()) == (2, {"ann": first.reservation_id})
    sweep_all(sale)
    assert_at_rest(sale)


# -- extension-held ----------------------------------------------------------------


def _held_after_a_rebuild_that_did_not_count_it(store):
    """Redis lost it, the rebuild counted without it, and only then its message fails."""
    sale = open_sale(units=1, validity_ms=1)
    reservation = sale.reserve("ann")
    wait_past(reservation)
    store.lose()
    rebuild(sale)
    sale.hold(reservation)
    return sale, reservation


def test_an_extension_needs_the_gate_to_name_the_reservation(store):
    sale, reservation = _held_after_a_rebuild_that_did_not_count_it(store)

    with pytest.raises(TicketRefused, match="does not know"):
        grant_extension(
            reservation_id=reservation.reservation_id,
            seconds=60,
            reason="replay",
            user=operator(*TICKETS),
        )

    assert one("SELECT count(*) FROM orders_extension") == 0
    assert promised_too_much(sale) == 0


def test_extension_held_off_revives_a_unit_that_was_given_to_others(store, monkeypatch):
    sale, reservation = _held_after_a_rebuild_that_did_not_count_it(store)
    monkeypatch.setattr(extension, "_require_at_gate", lambda held: None)

    grant_extension(
        reservation_id=reservation.reservation_id,
        seconds=60,
        reason="replay",
        user=operator(*TICKETS),
    )

    assert promised_too_much(sale) == 1


def test_an_extension_is_refused_while_the_gate_is_lost_or_rebuilding(store):
    sale, reservation = held()
    user = operator(*TICKETS)

    def ask():
        grant_extension(
            reservation_id=reservation.reservation_id, seconds=60, reason="replay", user=user
        )

    run, plan = until_read(sale)
    with pytest.raises(TicketRefused, match="being rebuilt"):
        ask()
    end(run, plan)
    store.copy()
    store.lose()
    with pytest.raises(TicketRefused, match="lost"):
        ask()
    store.come_back()
    ask()
    assert one("SELECT granted_by FROM orders_extension") == "olga"

"""One test for each rule of docs/protocol.md that a rebuild keeps.

Each story is told twice where it can be: as it ends, and as it ends with the rule switched off.
"""

import threading
from datetime import timedelta

import pytest
from django.db import connection
from django.db import transaction as database

from inventory import rebuild as rebuild_rows
from inventory import verbs
from inventory.contracts import ReserveCode
from inventory.errors import RebuildOvertaken
from inventory.gate import gate
from messaging.disposition import DONE
from orders import create_order
from orders.compensate import compensate
from orders.rebuild import steps, transaction
from orders.rebuild.steps import Deadline
from orders.rebuild.transaction import read_and_settle
from orders.release import release_reservations
from tests.fixtures.rebuild import (
    TICKETS,
    activity,
    assert_at_rest,
    begin,
    code,
    end,
    gate_status,
    held,
    operator,
    ordered,
    promised_too_much,
    rebuild,
    until_read,
    wait,
    without,
)
from tests.fixtures.sales import open_sale, run_projection
from tests.fixtures.sql import execute, one

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_wait")]


@pytest.fixture
def _django_db_helper(stores):
    """Real commits."""


def expired(sale, user):
    """A reservation that PostgreSQL has rejected, its release still DUE."""
    reservation = sale.reserve(user)
    execute("UPDATE inventory_activity SET voided_at = now() WHERE id = %s", sale.activity_id)
    sale.deliver(reservation)
    execute("UPDATE inventory_activity SET voided_at = NULL WHERE id = %s", sale.activity_id)
    assert sale.outcome(reservation)[2] == "DUE"
    return reservation


# -- a rebuild that nothing disturbs -----------------------------------------------------------


def test_a_rebuild_writes_what_postgres_knows(store):
    sale = open_sale(units=5, skus=2)
    ordered(sale, "ann", "bob")
    store.lose()

    done = rebuild(sale)

    assert (done.status, done.run.loss_noted) == ("OPEN", True)
    assert (sale.gate_stock(), sale.gate_stock(sale.sku_ids[1])) == (3, 5)
    assert activity(sale) == ("OPEN", 1, False, False)
    assert_at_rest(sale)
    assert code(sale, "cid") is ReserveCode.RESERVED
    assert code(sale, "ann") is ReserveCode.ALREADY_RESERVED


def test_a_lost_gate_answers_lost_until_it_is_rebuilt(store):
    sale = open_sale()
    store.lose()
    run = begin(sale)
    assert code(sale, "ann") is ReserveCode.GATE_LOST

    steps.close(run)  # a gate without stock is still lost

    assert code(sale, "ann") is ReserveCode.GATE_LOST


# -- buyers-decide ----------------------------------------------------------------


def _release_stalled_over_a_rebuild(monkeypatch):
    """A release that was read as DUE reaches the gate only after a rebuild has settled it."""
    sale = open_sale(units=3)
    reservation = expired(sale, "ann")
    real = gate().run
    stalled = []

    def run(call):
        if call.script == "release" and not stalled:
            stalled.append(call)
            # The competitor: a whole rebuild.
            store_open(sale, reservation)
            rebuild(sale)
        return real(call)

    monkeypatch.setattr(gate(), "run", run)
    return sale, reservation


def store_open(sale, reservation):
    """Take it out of `open`, as a loss of that key would: the rebuild need not wait for it."""
    gate().run(verbs.confirm(activity_id=sale.activity_id, items=[(0, reservation.reservation_id)]))


def test_buyers_decide_when_a_release_stalls_over_a_rebuild(monkeypatch):
    sale, reservation = _release_stalled_over_a_rebuild(monkeypatch)

    release_reservations([reservation.reservation_id])

    assert (sale.gate_stock(), sale.available()) == (3, 3)
    assert_at_rest(sale)


def test_buyers_decide_off_returns_the_unit_a_second_time(monkeypatch):
    sale, reservation = _release_stalled_over_a_rebuild(monkeypatch)
    without(monkeypatch, "release", "if redis.call('HGET', KEYS[3 * s + 2], user) == id then", "do")

    release_reservations([reservation.reservation_id])

    assert promised_too_much(sale) == 1


# -- rebuild-snapshot ----------------------------------------------------------------


def _compensated_while_it_reads(monkeypatch):
    """A ticket ends a held reservation after the rebuild has counted it, before its COMMIT."""
    sale, reservation = held()
    run = begin(sale)
    wait(run, steps.close(run))
    steps.begin_rebuilding(run)
    user = operator(*TICKETS)
    real = transaction.held_reservations

    def held_reservations(activity_id):
        found = real(activity_id)
        competitor = threading.Thread(
            target=in_thread(
                lambda: compensate(
                    reservation_id=reservation.reservation_id, reason="refund", user=user
                )
            )
        )
        competitor.start()
        competitor.join()
        return found

    monkeypatch.setattr(transaction, "held_reservations", held_reservations)
    plan, _ = read_and_settle(run)
    end(run, plan)
    return sale, reservation


def in_thread(call):
    def run():
        try:
            call()
        finally:
            connection.close()

    return run


def test_rebuild_reads_everything_from_one_snapshot(monkeypatch):
    sale, reservation = _compensated_while_it_reads(monkeypatch)
    assert sale.outcome(reservation)[2] == "DUE"  # not of this rebuild's snapshot: still to do

    release_reservations([reservation.reservation_id])

    assert (sale.gate_stock(), sale.holders()) == (2, {})
    assert_at_rest(sale)


def test_rebuild_snapshot_off_settles_what_it_did_not_count(monkeypatch):
    monkeypatch.setattr(transaction, "ISOLATION", "READ COMMITTED")
    sale, reservation = _compensated_while_it_reads(monkeypatch)

    release_reservations([reservation.reservation_id])

    # DONE on paper, and the gate keeps the unit for ever.
    assert sale.outcome(reservation)[2] == "DONE"
    assert (sale.gate_stock(), sale.available()) == (1, 2)


def test_rebuild_waits_for_a_transaction_that_moves_units_and_reads_again(monkeypatch):
    sale, reservation = held(units=1)
    run = begin(sale)
    wait(run, steps.close(run))
    steps.begin_rebuilding(run)
    holds, tries = threading.Event(), []
    real = rebuild_rows.take_ground

    def order():
        """The held reservation becomes an order after all; its COMMIT comes while we wait."""
        take = create_order.stock.take

        def stalled(demand):
            take(demand)
            holds.set()
            _until(lambda: _waiting_for_a_lock())

        monkeypatch.setattr(create_order.stock, "take", stalled)
        sale.deliver(reservation)

    thread = threading.Thread(target=in_thread(order))
    thread.start()
    assert holds.wait(5)

    def take_ground(run):
        tries.append(1)
        return real(run)

    monkeypatch.setattr(transaction.rebuild, "take_ground", take_ground)
    plan, found = read_and_settle(run)
    thread.join()

    assert (len(tries), found.available, found.live_orders) == (2, {sale.sku_id: 0}, 1)
    end(run, plan)
    run_projection()
    assert (sale.gate_stock(), sale.order_status(reservation)) == (0, "CREATED")


def _waiting_for_a_lock():
    return one(
        "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
        " WHERE NOT l.granted AND a.datname = current_database()"
    )


def _until(condition):
    for _ in range(2_000):
        if condition():
            return
    raise AssertionError("it never came")


# -- rebuild-fence ----------------------------------------------------------------


def _older_run_wakes_up():
    """A run stalls before its last script; another runs to its end; then a unit is sold."""
    sale = open_sale(units=2)
    run, plan = until_read(sale)
    rebuild(sale)
    ordered(sale, "ann")
    return sale, run, plan


def test_rebuild_fence_stops_an_older_run_at_the_gate_and_in_postgres():
    sale, run, plan = _older_run_wakes_up()

    with pytest.raises(RebuildOvertaken):
        steps.write(run, plan)
    with pytest.raises(RebuildOvertaken):
        steps.close(run)
    with pytest.raises(RebuildOvertaken):
        read_and_settle(run)
    with pytest.raises(RebuildOvertaken):
        steps.finish(run)

    assert (sale.gate_stock(), gate_status(sale)) == (1, "OPEN")
    assert one("SELECT string_agg(status, ' ' ORDER BY number) FROM inventory_rebuildrun") == (
        "OVERTAKEN DONE"
    )


def test_rebuild_fence_off_writes_old_numbers(monkeypatch):
    sale, run, plan = _older_run_wakes_up()
    without(monkeypatch, "finish_rebuild", "if gate[2] ~= ARGV[2] then return STALE end")
    without(monkeypatch, "finish_rebuild", "if gate[1] ~= 'REBUILDING' then return REFUSED end")

    steps.write(run, plan)

    assert promised_too_much(sale) == 1


# -- wait-both ----------------------------------------------------------------


def test_wait_both_after_a_loss_the_newest_end_and_empty_zsets(store):
    sale = open_sale(validity_ms=60_000)
    store.copy()
    reservation = sale.reserve("ann")
    store.come_back()
    listed = sale.reserve("bob")
    run = begin(sale, note_loss=True, force=False)
    deadline = steps.close(run)
    # What Redis lost may still become an order: not yet, though the copy lists nothing of it.
    passed = Deadline(at=None)
    assert not steps.look(run, replace_deadline(deadline, hours=1)).done
    # Its end has passed, but the copy still lists a reservation that has no outcome.
    assert steps.look(run, passed).open == 1

    sale.deliver(reservation, listed)
    run_projection()

    assert steps.look(run, passed).done
    assert not steps.look(run, replace_deadline(deadline, hours=1)).done


def replace_deadline(deadline, *, hours):
    assert deadline.at is not None
    return Deadline(at=deadline.at + timedelta(hours=hours))


def test_wait_both_counts_a_transaction_that_judged_by_the_clock_of_before():
    sale = open_sale()
    run = begin(sale, note_loss=True, force=False)
    deadline = steps.close(run)
    wait(run, Deadline(at=deadline.at))
    open_one, end_it = threading.Event(), threading.Event()

    def slow_order():
        with database.atomic():
            execute("DELETE FROM messaging_inbox WHERE message_id = 'none'")  # it writes outcomes
            open_one.set()
            assert end_it.wait(5)

    thread = threading.Thread(target=in_thread(slow_order))
    thread.start()
    assert open_one.wait(5)
    fresh = Deadline(at=deadline.at)

    assert steps.look(run, fresh).transactions
    end_it.set()
    thread.join()
    wait(run, fresh)


def test_wait_both_off_a_lost_reservation_becomes_an_order_of_a_unit_that_is_sold_again(store):
    sale = open_sale(units=1)
    reservation = sale.reserve("ann")
    store.lose()
    rebuild(sale, force=True)  # off: it did not wait until ann's reservation has ended

    assert sale.deliver(reservation) == [DONE]

    assert promised_too_much(sale) == 1

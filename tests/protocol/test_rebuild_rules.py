"""One test for each rule of docs/protocol.md that rebuild, losses and the moving mark keep.

Each story is told twice where it can be: as it ends, and as it ends with the rule switched off.
"""

import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connection
from django.db import transaction as database

from inventory import operation_requests, operations, verbs
from inventory import rebuild as rebuild_rows
from inventory.contracts import AdjustCode, GateWriteCode, ReserveCode
from inventory.errors import GateUnavailable, OperationRefused, RebuildOvertaken
from inventory.gate import gate
from messaging.disposition import DONE
from orders import create_order, extension
from orders.compensate import compensate
from orders.errors import TicketRefused
from orders.extension import grant_extension
from orders.rebuild import loss, steps, transaction
from orders.rebuild.steps import Deadline
from orders.rebuild.transaction import read_and_settle
from orders.release import release_reservations
from orders.scan.mark import MarkJob
from tests.fixtures.rebuild import (
    Crashed,
    activity,
    assert_at_rest,
    begin,
    crash_at,
    end,
    gate_status,
    operator,
    promised_too_much,
    rebuild,
    sweep_all,
    until_read,
    wait,
    without,
)
from tests.fixtures.sales import open_sale, run_projection, wait_past
from tests.fixtures.sql import execute, one

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_wait")]

TICKETS = ("orders.grant_extension", "orders.compensate_reservation")


@pytest.fixture
def _django_db_helper(stores):
    """Real commits."""


def ordered(sale, *users):
    """Buyers with an order that the gate knows of."""
    made = [sale.reserve(user) for user in users]
    sale.deliver(*made)
    run_projection()
    return made


def expired(sale, user):
    """A reservation that PostgreSQL has rejected, its release still DUE."""
    reservation = sale.reserve(user)
    execute("UPDATE inventory_activity SET voided_at = now() WHERE id = %s", sale.activity_id)
    sale.deliver(reservation)
    execute("UPDATE inventory_activity SET voided_at = NULL WHERE id = %s", sale.activity_id)
    assert sale.outcome(reservation)[2] == "DUE"
    return reservation


def code(sale, user):
    """What a new buyer is answered."""
    (reply,) = gate().run(
        verbs.reserve(
            activity_id=sale.activity_id,
            requests=[sale._request(user, sku_id=sale.sku_id, quantity=1)],
            lease_owner="test",
            lease_ms=1_000,
        )
    )
    return reply.code


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


# -- rebuild-held-buyers ----------------------------------------------------------------


def _held(units=2):
    sale = open_sale(units=units)
    reservation = sale.reserve("ann")
    sale.hold(reservation)
    return sale, reservation


def test_rebuild_writes_held_buyers_so_that_a_ticket_can_free_them(store):
    sale, reservation = _held()
    store.lose()
    done = rebuild(sale)
    assert (done.found.held, sale.gate_stock()) == ({sale.sku_id: 1}, 1)
    assert sale.holders() == {"ann": reservation.reservation_id}

    compensate(reservation_id=reservation.reservation_id, reason="lost", user=operator(*TICKETS))

    assert sale.outcome(reservation) == ("REJECTED", "COMPENSATED", "DONE")
    assert sale.gate_stock() == 2
    assert_at_rest(sale)


def test_rebuild_held_buyers_off_loses_the_unit(store):
    sale, reservation = _held()
    store.lose()
    run, plan = until_read(sale)
    end(run, replace(plan, gates=tuple(replace(g, buyers={}) for g in plan.gates)))

    compensate(reservation_id=reservation.reservation_id, reason="lost", user=operator(*TICKETS))

    assert (sale.gate_stock(), sale.available()) == (1, 2)


# -- rebuild-snapshot ----------------------------------------------------------------


def _compensated_while_it_reads(monkeypatch):
    """A ticket ends a held reservation after the rebuild has counted it, before its COMMIT."""
    sale, reservation = _held()
    run = begin(sale)
    wait(run, steps.close(run))
    steps.begin_rebuilding(run)
    user = operator(*TICKETS)
    real = transaction.held_reservations

    def held_reservations(activity_id):
        found = real(activity_id)
        competitor = threading.Thread(
            target=_in_thread(
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


def _in_thread(call):
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
    sale, reservation = _held(units=1)
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

    thread = threading.Thread(target=_in_thread(order))
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

    thread = threading.Thread(target=_in_thread(slow_order))
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


# -- loss-row ----------------------------------------------------------------


def _crashed_after_the_loss(store, monkeypatch):
    """An older copy is noticed; the run that it began dies before its transaction."""
    sale = open_sale(units=1)
    MarkJob().run_once()
    store.copy()
    for _ in range(3):
        MarkJob().run_once()
    store.come_back()
    crash_at(monkeypatch, "rebuild.after_close")
    with pytest.raises(Crashed):
        rebuild(sale, note_loss=True)
    return sale


def test_loss_row_stands_until_the_gate_is_open_again(store, monkeypatch):
    sale = _crashed_after_the_loss(store, monkeypatch)
    assert activity(sale) == ("OPEN", 1, True, True)

    done = rebuild(sale)

    assert done.run.loss_noted
    assert activity(sale) == ("OPEN", 2, False, False)
    assert MarkJob().run_once() == 0


def test_loss_row_off_the_next_run_takes_the_older_copy_for_the_truth(store, monkeypatch):
    sale = _crashed_after_the_loss(store, monkeypatch)
    execute("UPDATE inventory_activity SET loss_noted_at = NULL")  # off

    done = rebuild(sale)

    assert not done.run.loss_noted
    assert MarkJob().run_once() == 1  # only the mark still knows


def test_loss_row_is_cleared_by_the_newest_run_only():
    sale = open_sale()
    run, plan = until_read(sale, note_loss=True)
    steps.write(run, plan)
    begin(sale)  # a newer run, as a second loss would begin it

    with pytest.raises(RebuildOvertaken):
        steps.finish(run)

    assert activity(sale) == ("OPEN", 2, True, True)


# -- ops-epoch ----------------------------------------------------------------


def _top_up_stalled_before_redis(monkeypatch):
    """Booked in PostgreSQL; its call of the gate is still on its way when a rebuild counts it."""
    sale = open_sale(units=1)

    def unavailable(operation_id):
        raise GateUnavailable("stalled")

    with monkeypatch.context() as patch:
        patch.setattr(operation_requests, "drive_operation", unavailable)
        operation = operations.request_top_up(
            activity_id=sale.activity_id, sku_id=sale.sku_id, units=2, reason="more"
        )
    call = verbs.adjust_stock(
        activity_id=sale.activity_id,
        sku_id=sale.sku_id,
        operation_id=operation,
        units=2,
        epoch=1,
    )
    done = rebuild(sale)
    assert done.found.topped_up == (operation,)
    return sale, call


def test_ops_epoch_refuses_what_a_rebuild_has_counted(monkeypatch):
    sale, call = _top_up_stalled_before_redis(monkeypatch)

    assert gate().run(call).code is AdjustCode.WRONG_EPOCH
    assert operations.drive() == 0

    assert (sale.gate_stock(), sale.available()) == (3, 3)
    assert_at_rest(sale)


def test_ops_epoch_off_gives_the_units_twice(monkeypatch):
    without(
        monkeypatch,
        "adjust_stock",
        "if tonumber(gate[2]) ~= epoch then return { WRONG_EPOCH, 0 } end",
    )
    sale, call = _top_up_stalled_before_redis(monkeypatch)

    gate().run(call)

    assert promised_too_much(sale) == 2


# -- ops-deleted ----------------------------------------------------------------


def _cut_taken_but_not_booked(monkeypatch):
    sale = open_sale(units=3)
    crash_at(monkeypatch, "operation.after_gate")
    with pytest.raises(Crashed):
        operations.request_cut(
            activity_id=sale.activity_id, sku_id=sale.sku_id, units=1, reason="broken"
        )
    assert (sale.gate_stock(), sale.available()) == (2, 3)
    rebuild(sale)
    operations.drive()
    return sale


def test_ops_deleted_lets_a_cut_that_was_not_booked_start_over(monkeypatch):
    sale = _cut_taken_but_not_booked(monkeypatch)

    assert (sale.gate_stock(), sale.available()) == (2, 2)
    assert_at_rest(sale)


def test_ops_deleted_off_books_a_cut_that_took_nothing(monkeypatch):
    without(
        monkeypatch,
        "finish_rebuild",
        "redis.call('DEL', KEYS[4 * s], KEYS[4 * s + 1])",
        "redis.call('DEL', KEYS[4 * s])",
    )

    sale = _cut_taken_but_not_booked(monkeypatch)

    assert promised_too_much(sale) == 1


# -- stop-stands, stop-field, stop-row ---------------------------------------------------------


def test_a_stop_that_arrives_after_the_reading_stands():
    sale = open_sale()
    run, plan = until_read(sale)
    operations.request_stop(activity_id=sale.activity_id, reason="now")
    assert gate_status(sale) == "REBUILDING"  # stop-field: it never changes REBUILDING

    end(run, plan)

    assert (gate_status(sale), code(sale, "ann")) == ("CLOSED", ReserveCode.CLOSED)
    operations.request_open(activity_id=sale.activity_id, reason="go on")
    assert code(sale, "ann") is ReserveCode.RESERVED


def test_stop_field_off_sells_after_a_stop(monkeypatch):
    without(monkeypatch, "finish_rebuild", "gate[3] == '1' or ", "")
    sale = open_sale()
    run, plan = until_read(sale)
    operations.request_stop(activity_id=sale.activity_id, reason="now")

    end(run, plan)

    assert code(sale, "ann") is ReserveCode.RESERVED


def test_stop_row_a_stop_that_redis_forgot_stands_in_postgres(store):
    sale = open_sale()
    operations.request_stop(activity_id=sale.activity_id, reason="now")
    store.lose()

    assert rebuild(sale).status == "CLOSED"
    assert code(sale, "ann") is ReserveCode.CLOSED


def test_stop_row_off_the_rebuild_reads_open(store):
    sale = open_sale()
    operations.request_stop(activity_id=sale.activity_id, reason="now")
    execute("UPDATE inventory_activity SET status = 'OPEN'")  # off: written when it is DONE
    store.lose()

    rebuild(sale)

    assert code(sale, "ann") is ReserveCode.RESERVED


def test_stop_stands_through_every_later_run(store):
    sale = open_sale()
    run, plan = until_read(sale)
    operations.request_stop(activity_id=sale.activity_id, reason="now")
    store.lose()
    with pytest.raises(steps.LossFound):
        steps.write(run, plan)

    assert rebuild(sale).status == "CLOSED"
    assert rebuild(sale).status == "CLOSED"


# -- open-refused ----------------------------------------------------------------


def _open_on_its_way():
    sale = open_sale()
    operations.request_pause(activity_id=sale.activity_id, reason="a pause")
    version = one("SELECT version FROM inventory_activity") + 1
    call = verbs.open_gate(
        activity_id=sale.activity_id, epochs={sale.sku_id: 1}, version=version, first=False
    )
    return sale, call


def test_open_is_refused_while_a_run_is_unfinished():
    sale, call = _open_on_its_way()
    run = begin(sale)
    with pytest.raises(OperationRefused, match="only rebuild_gate"):
        operations.request_resume(activity_id=sale.activity_id, reason="again")
    steps.close(run)
    with pytest.raises(OperationRefused, match="being rebuilt"):
        operations.request_resume(activity_id=sale.activity_id, reason="again")

    assert gate().run(call) is GateWriteCode.REFUSED

    assert gate_status(sale) == "CLOSED"


def test_open_refused_off_opens_the_gate_under_a_rebuild(monkeypatch):
    without(monkeypatch, "open_gate", "if (gate[3] or '0') ~= '0' then return REFUSED end")
    sale, call = _open_on_its_way()
    run = begin(sale)
    steps.close(run)

    gate().run(call)

    assert code(sale, "ann") is ReserveCode.RESERVED  # the run has waited for nobody like him
    with pytest.raises(steps.RebuildWaits):
        steps.begin_rebuilding(run)


# -- loss-starts-run ----------------------------------------------------------------


def test_noting_a_loss_overtakes_a_run_and_an_open_on_their_way():
    sale, call = _open_on_its_way()
    run = begin(sale)  # stalls before its first script, and knows of no loss

    noted = loss.note_loss(activity_id=sale.activity_id, kind=loss.OLDER_COPY, reason="test")

    assert noted is not None
    assert (noted.number, noted.loss_noted) == (run.number + 1, True)
    assert gate().run(call) is GateWriteCode.REFUSED
    with pytest.raises(RebuildOvertaken):
        steps.close(run)
    assert activity(sale) == ("PAUSED", 2, True, True)


def test_loss_starts_run_off_an_older_run_clears_the_note():
    sale = open_sale()
    run = begin(sale)
    execute("UPDATE inventory_activity SET loss_noted_at = now()")  # off: noted, no number taken

    wait(run, steps.close(run))
    steps.begin_rebuilding(run)
    plan, _ = read_and_settle(run)
    end(run, plan)

    assert plan.mark is None  # the older copy's mark stays, and nobody knows of it any more
    assert activity(sale)[3] is False


def test_a_loss_is_noted_once():
    sale = open_sale()
    first = loss.note_loss(activity_id=sale.activity_id, kind=loss.LOST, reason="test")

    again = loss.note_loss(activity_id=sale.activity_id, kind=loss.LOST, reason="test")

    assert first is not None
    assert again is None
    assert activity(sale) == ("OPEN", 1, True, True)


# -- mark-after-loss ----------------------------------------------------------------


def _run_that_does_not_know_of_the_older_copy(store):
    sale = open_sale(units=2)
    MarkJob().run_once()
    store.copy()
    for _ in range(3):
        MarkJob().run_once()
    store.come_back()
    run, plan = until_read(sale)
    assert not run.loss_noted
    return sale, run, plan


def test_the_mark_is_written_after_a_noted_loss_only(store):
    sale, run, plan = _run_that_does_not_know_of_the_older_copy(store)
    assert plan.mark is None
    end(run, plan)

    assert MarkJob().run_once() == 1

    assert activity(sale) == ("OPEN", 2, True, True)
    assert gate_status(sale) == "CLOSED"


def test_mark_after_loss_off_blesses_the_older_copy(store):
    sale, run, plan = _run_that_does_not_know_of_the_older_copy(store)
    number = one("SELECT number FROM inventory_gatemark")
    end(run, replace(plan, mark=number - 1))  # off

    assert MarkJob().run_once() == 0
    assert gate_status(sale) == "OPEN"


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
    sale, reservation = _held()
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

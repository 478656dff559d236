"""Rebuilds that meet each other, crashes, losses and a sale that goes on: it always ends well."""

import random
import threading

import pytest
from django.db import connection

import faultpoint
from inventory import operations, verbs
from inventory.errors import OperationRefused, RebuildOvertaken
from inventory.gate import gate
from orders.cancel_order import cancel_unpaid
from orders.errors import RebuildWaits
from orders.rebuild import steps
from orders.rebuild.transaction import read_and_settle
from orders.release import release_reservations
from orders.scan.mark import MarkJob
from tests.fixtures.rebuild import (
    Crashed,
    activity,
    assert_at_rest,
    begin,
    crash_at,
    gate_status,
    rebuild,
    sweep_all,
    wait,
)
from tests.fixtures.sales import (
    at_once,
    open_sale,
    run_projection,
    run_releases,
)
from tests.fixtures.sql import execute, one, rows

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_wait")]

POINTS = (
    *("rebuild.after_note", "rebuild.after_close", "rebuild.after_wait", "rebuild.after_begin"),
    *("rebuild.before_commit", "rebuild.after_commit", "rebuild.after_write"),
)


@pytest.fixture
def _django_db_helper(stores):
    """Real commits."""


def busy_sale():
    """Orders, one of them cancelled with its release DUE, and a held buyer."""
    sale = open_sale(units=6)
    made = [sale.reserve(user) for user in ("ann", "bob", "cid")]
    sale.deliver(*made)
    run_projection()
    execute("UPDATE orders_order SET expires_at = now() - interval '1 min' WHERE user_id = 'bob'")
    cancel_unpaid([made[1].order_id])
    sale.hold(sale.reserve("dan"))
    return sale


@pytest.mark.parametrize("loss", [False, True], ids=["wanted", "lost"])
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_at_any_step_is_made_up_by_the_next_run(store, monkeypatch, point, loss):
    sale = busy_sale()
    if loss:
        store.lose()
    crash_at(monkeypatch, point)
    with pytest.raises(Crashed):
        rebuild(sale)
    status, run, unfinished, noted = activity(sale)
    assert (status, run, unfinished, noted) == ("OPEN", 1, True, loss)
    # Nothing but a rebuild opens it again, whatever happens meanwhile.
    with pytest.raises(OperationRefused):
        operations.request_resume(activity_id=sale.activity_id, reason="impatient")
    run_releases()
    operations.drive()

    done = rebuild(sale)

    assert (done.status, done.run.number) == ("OPEN", 2)
    assert activity(sale) == ("OPEN", 2, False, False)
    assert (sale.gate_stock(), sale.available()) == (3, 4)  # dan's unit is held
    assert set(sale.holders()) == {"ann", "cid", "dan"}
    run_releases()
    assert_at_rest(sale)
    assert MarkJob().run_once() == 0


@pytest.mark.parametrize("point", POINTS)
def test_redis_loses_everything_at_any_step(store, monkeypatch, point):
    sale = busy_sale()
    real, lost = faultpoint.hit, []

    def hit(name):
        if name == point and not lost:
            lost.append(name)
            store.lose()
        real(name)

    monkeypatch.setattr(faultpoint, "hit", hit)

    done = rebuild(sale)

    if point == "rebuild.after_write":  # the run itself is through; the mark's job sees the loss
        assert MarkJob().run_once() == 1
        done = rebuild(sale)
    assert (done.status, done.run.loss_noted) == ("OPEN", True)
    assert (sale.gate_stock(), sale.available()) == (3, 4)
    run_releases()
    assert_at_rest(sale)


def test_two_runs_at_once_end_with_one_gate():
    sale = busy_sale()

    results = at_once([lambda: rebuild(sale)] * 2)

    ended = [r for r in results if not isinstance(r, Exception)]
    failed = [r for r in results if isinstance(r, Exception)]
    assert all(isinstance(error, RebuildOvertaken | RebuildWaits) for error in failed), failed
    assert len(ended) >= 1
    if activity(sale)[2]:  # both gave up: the next one ends it
        rebuild(sale)
    assert (gate_status(sale), activity(sale)[2:]) == ("OPEN", (False, False))
    run_releases()
    assert_at_rest(sale)


def test_every_interleaving_of_two_runs_and_a_stalled_release():
    """A seeded walk over the steps of two runs, releases and a cancel; the sums are right."""
    for seed in range(8):
        rng = random.Random(seed)
        sale = busy_sale()
        runs = [_steps(sale), _steps(sale), _side(sale)]
        while runs:
            process = rng.choice(runs)
            try:
                next(process)
            except (StopIteration, RebuildOvertaken, RebuildWaits, steps.LossFound):
                runs.remove(process)
        if activity(sale)[2]:
            rebuild(sale)
        run_releases()
        release_reservations(
            r.reservation_id for r in sale.reservations if sale.outcome(r)[2] == "DUE"
        )
        assert gate_status(sale) == "OPEN", seed
        assert_at_rest(sale)


def _steps(sale):
    run = begin(sale)
    yield
    deadline = steps.close(run)
    yield
    wait(run, deadline)
    yield
    steps.begin_rebuilding(run)
    yield
    plan, _ = read_and_settle(run)
    yield
    steps.write(run, plan)
    yield
    steps.finish(run)


def _side(sale):
    yield
    release_reservations(r.reservation_id for r in sale.reservations)
    yield
    execute(
        "UPDATE orders_order SET expires_at = now() - interval '1 min'"
        " WHERE user_id = 'cid' AND activity_id = %s",
        sale.activity_id,
    )
    cancel_unpaid(
        [r[0] for r in _rows_of(sale, "SELECT order_id FROM orders_order WHERE user_id = 'cid'")]
    )
    yield
    release_reservations(r.reservation_id for r in sale.reservations)


def _rows_of(sale, sql):
    return rows(f"{sql} AND activity_id = %s", sale.activity_id)


def test_a_wanted_rebuild_waits_until_everybody_has_an_outcome():
    sale = open_sale(units=3)
    first = sale.reserve("ann")
    pending = sale.reserve("bob", sent=False)
    run = begin(sale)
    deadline = steps.close(run)
    waiting = steps.look(run, deadline)
    assert (waiting.done, waiting.pending, waiting.open) == (False, 1, 2)

    sale.deliver(first, pending)
    run_projection()

    assert steps.look(run, deadline).done
    # New buyers are refused meanwhile, holders are answered.
    replies = gate().run(
        verbs.reserve(
            activity_id=sale.activity_id,
            requests=[
                sale._request(user, sku_id=sale.sku_id, quantity=1) for user in ("new", "ann")
            ],
            lease_owner="test",
            lease_ms=1_000,
        )
    )
    assert [reply.code.name for reply in replies] == ["CLOSED", "ALREADY_RESERVED"]


def test_a_rebuild_goes_on_when_the_last_reservation_has_its_outcome():
    sale = open_sale(units=3)
    reservation = sale.reserve("ann")
    seen = threading.Event()
    results = []

    def run():
        try:
            results.append(rebuild(sale, progress=lambda line: seen.set()))
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert seen.wait(5)
    sale.deliver(reservation)
    run_projection()
    thread.join(10)

    assert [result.status for result in results] == ["OPEN"]
    assert (sale.gate_stock(), sale.available()) == (2, 2)
    assert_at_rest(sale)


def test_a_rebuild_is_refused_for_what_has_no_gate_to_rebuild():
    sale = open_sale()
    for change in ("opened_at = NULL", "opened_at = now(), status = 'SETTLED'"):
        execute(f"UPDATE inventory_activity SET {change}")  # noqa: S608
        with pytest.raises(OperationRefused):
            rebuild(sale)
    assert one("SELECT count(*) FROM inventory_rebuildrun") == 0
    assert gate_status(sale) == "OPEN"


def test_force_is_kept_with_the_run_and_waits_for_nothing_that_was_lost(store):
    sale = open_sale(units=2)
    sale.reserve("ann")
    store.lose()

    rebuild(sale, force=True)

    assert one("SELECT forced FROM inventory_rebuildrun") is True
    sweep_all(sale)
    assert sale.gate_stock() == 2

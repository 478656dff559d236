"""One test for each rule of docs/protocol.md that losses and the moving mark keep.

Each story is told twice where it can be: as it ends, and as it ends with the rule switched off.
"""

from dataclasses import replace

import pytest

from inventory.contracts import GateWriteCode
from inventory.errors import RebuildOvertaken
from inventory.gate import gate
from orders.rebuild import loss, steps
from orders.rebuild.transaction import read_and_settle
from orders.scan.mark import MarkJob
from tests.fixtures.rebuild import (
    Crashed,
    activity,
    begin,
    crash_at,
    end,
    gate_status,
    open_on_its_way,
    rebuild,
    until_read,
    wait,
)
from tests.fixtures.sales import open_sale
from tests.fixtures.sql import execute, one

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_wait")]


@pytest.fixture
def _django_db_helper(stores):
    """Real commits."""


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


# -- loss-starts-run ----------------------------------------------------------------


def test_noting_a_loss_overtakes_a_run_and_an_open_on_their_way():
    sale, call = open_on_its_way()
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

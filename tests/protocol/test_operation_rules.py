"""One test for each rule of docs/protocol.md that operators' changes keep over a rebuild.

Each story is told twice where it can be: as it ends, and as it ends with the rule switched off.
"""

import pytest

from inventory import operation_requests, operations, verbs
from inventory.contracts import AdjustCode, GateWriteCode, ReserveCode
from inventory.errors import GateUnavailable, OperationRefused
from inventory.gate import gate
from orders.rebuild import steps
from tests.fixtures.rebuild import (
    Crashed,
    assert_at_rest,
    begin,
    code,
    crash_at,
    end,
    gate_status,
    open_on_its_way,
    promised_too_much,
    rebuild,
    until_read,
    without,
)
from tests.fixtures.sales import open_sale
from tests.fixtures.sql import execute

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_wait")]


@pytest.fixture
def _django_db_helper(stores):
    """Real commits."""


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


def test_open_is_refused_while_a_run_is_unfinished():
    sale, call = open_on_its_way()
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
    sale, call = open_on_its_way()
    run = begin(sale)
    steps.close(run)

    gate().run(call)

    assert code(sale, "ann") is ReserveCode.RESERVED  # the run has waited for nobody like him
    with pytest.raises(steps.RebuildWaits):
        steps.begin_rebuilding(run)

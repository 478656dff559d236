"""load, open, close, edit, adjust and the rebuild's scripts on real Redis."""

import pytest

from inventory import keys, verbs
from inventory.contracts import (
    AdjustCode,
    GateLoad,
    GateRebuild,
    GateWriteCode,
    ReserveCode,
)
from inventory.states import GateStatus
from tests.fixtures.gate import GateSale

OK, MISSING, STALE = GateWriteCode.OK, GateWriteCode.MISSING, GateWriteCode.STALE
REFUSED, REBUILDING = GateWriteCode.REFUSED, GateWriteCode.REBUILDING


def adjust(sale: GateSale, units: int, *, operation: str = "op_1", epoch: int = 1):
    reply = sale.run(
        verbs.adjust_stock(
            activity_id=42, sku_id=7, operation_id=operation, units=units, epoch=epoch
        )
    )
    return reply.code, reply.units


def load(sale: GateSale, units: int, epoch: int) -> GateWriteCode:
    gates = [GateLoad(sku_id=7, units=units, epoch=epoch, config=sale.config())]
    return sale.run(verbs.load_gate(activity_id=42, gates=gates, version=1))


def finish(sale: GateSale, *, run: int = 1, status: GateStatus = GateStatus.OPEN, **changes):
    values = {
        "sku_id": 7,
        "units": 4,
        "epoch": 2,
        "config": sale.config(),
        "buyers": {"ann": "rsv_a", "bob": "rsv_b"},
    }
    mark = changes.pop("mark", None)
    return sale.run(
        verbs.finish_rebuild(
            activity_id=42,
            gates=[GateRebuild(**(values | changes))],
            run=run,
            mark=mark,
            status=status,
            version=changes.pop("version", 1),
        )
    )


# --- load, open, close


def test_a_loaded_gate_is_closed_until_it_is_opened(new_sale) -> None:
    sale = new_sale(3, opened=False)
    state = sale.state()
    assert (state.status, state.stock, state.epoch, state.warm) == ("CLOSED", 3, 1, True)
    assert sale.code("ann") is ReserveCode.CLOSED
    assert sale.open() is OK
    assert sale.state().warm is False
    assert sale.code("ann") is ReserveCode.RESERVED


def test_a_gate_can_be_loaded_again_until_it_is_opened_never_after(new_sale) -> None:
    sale = new_sale(3, opened=False)
    assert load(sale, 9, 2) is OK
    assert load(sale, 3, 1) is STALE  # a stalled loader
    assert sale.stock() == 9
    sale.open()
    sale.buy("ann")
    before = sale.dump()
    assert load(sale, 9, 3) is REFUSED
    assert sale.dump() == before


def test_a_gate_of_another_epoch_is_not_opened(new_sale) -> None:
    sale = new_sale(3, opened=False)
    call = verbs.open_gate(activity_id=42, epochs={7: 2}, version=1, first=True)
    assert sale.run(call) is REFUSED
    assert sale.state().status == "CLOSED"


def test_a_freshly_loaded_gate_of_a_sale_opened_before_is_not_opened(new_sale) -> None:
    """A stalled warm-up arrives after the loss: what was sold is not in this gate."""
    sale = new_sale(3, opened=False)
    assert sale.open(first=False) is REFUSED
    assert sale.code("ann") is ReserveCode.CLOSED


def test_all_skus_are_opened_or_none(new_sale) -> None:
    sale = new_sale(3, sku_ids=(7, 8), opened=False)
    sale.client.delete(keys.gate(42, 8))
    call = verbs.open_gate(activity_id=42, epochs={7: 1, 8: 1}, version=1, first=True)
    assert sale.run(call) is MISSING
    assert sale.state(7).status == "CLOSED"


def test_a_newer_stop_is_not_undone_by_an_older_open_nor_the_reverse(new_sale) -> None:
    sale = new_sale(3)
    assert sale.close(version=5) is OK
    assert sale.open(version=4, first=False) is STALE
    assert sale.code("ann") is ReserveCode.CLOSED
    assert sale.open(version=6, first=False) is OK
    assert sale.close(version=5) is STALE
    assert sale.code("ann") is ReserveCode.RESERVED
    assert sale.open(version=6, first=False) is OK  # repeated


def test_a_stop_reaches_the_gates_that_are_there(new_sale) -> None:
    sale = new_sale(3, sku_ids=(7, 8))
    sale.client.delete(keys.gate(42, 7))
    assert sale.close() is MISSING
    assert sale.code("ann", sku_id=8) is ReserveCode.CLOSED
    assert sale.client.exists(keys.gate(42, 7)) == 0


def test_closed_is_never_softened_to_paused(new_sale) -> None:
    sale = new_sale(3)
    sale.close(GateStatus.CLOSED)
    sale.close(GateStatus.PAUSED)
    assert sale.state().status == "CLOSED"


# --- edit


def test_an_edit_changes_new_reservations_only(new_sale) -> None:
    sale = new_sale(3, validity_ms=300_000)
    old = sale.buy("ann")
    version = sale.state().version
    sale.edit(validity_ms=60_000, limit_per_user=2)
    new = sale.buy("bob", quantity=2)
    assert new.valid_until_ms - new.created_at_ms == 60_000
    assert sale.stored(old.reservation_id)["valid_until"] == str(old.valid_until_ms)
    assert sale.state().version > version


def test_an_older_edit_is_refused(new_sale) -> None:
    sale = new_sale(3)
    sale.edit(limit_per_user=2)
    older = verbs.edit_gate(activity_id=42, configs={7: sale.config(limit_per_user=9)}, version=1)
    assert sale.run(older) is STALE
    assert sale.state().config.limit_per_user == 2


def test_a_missing_gate_is_not_made_by_an_edit(new_sale) -> None:
    sale = new_sale(3, sku_ids=(7, 8))
    sale.client.delete(keys.gate(42, 8))
    before = sale.dump()
    call = verbs.edit_gate(activity_id=42, configs={7: sale.config(), 8: sale.config()}, version=9)
    assert sale.run(call) is MISSING
    assert sale.dump() == before


# --- adjust


def test_a_top_up_gives_and_a_cut_takes_what_is_there(new_sale) -> None:
    sale = new_sale(3)
    version = sale.state().version
    assert adjust(sale, 4) == (AdjustCode.OK, 4)
    assert adjust(sale, -5, operation="op_2") == (AdjustCode.OK, -5)
    assert adjust(sale, -5, operation="op_3") == (AdjustCode.OK, -2)
    assert adjust(sale, -5, operation="op_4") == (AdjustCode.OK, 0)
    assert sale.stock() == 0
    assert sale.state().version == version + 4


def test_a_repeated_operation_answers_what_it_did(new_sale) -> None:
    sale = new_sale(3)
    adjust(sale, -5)
    sale.client.incrby(keys.stock(42, 7), 10)  # units that came back meanwhile
    before = sale.dump()
    assert adjust(sale, -5) == (AdjustCode.REPEATED, -3)
    assert sale.dump() == before


# --- rebuild


def test_a_rebuild_runs_from_closed_to_open(new_sale) -> None:
    sale = new_sale(3)
    sale.rebuilding(run=1)
    version = sale.state().version
    assert sale.code("ann") is ReserveCode.CLOSED

    assert finish(sale, run=1) is OK

    state = sale.state()
    assert (state.status, state.stopped, state.stock, state.epoch) == ("OPEN", False, 4, 2)
    assert (state.rebuild_run, state.version) == (0, version + 1)
    assert sale.holders() == {"ann": "rsv_a", "bob": "rsv_b"}
    assert sale.client.get(keys.mark(42)) == "0"


def test_a_rebuild_writes_many_buyers_and_forgets_the_old_ones(new_sale) -> None:
    sale = new_sale(3)
    sale.buy("old")
    sale.rebuilding()
    buyers = {f"user{n}": f"rsv_{n}" for n in range(20_000)}
    assert finish(sale, buyers=buyers) is OK
    assert sale.holders() == buyers


def test_rebuilding_is_reached_from_closed_only(new_sale) -> None:
    sale = new_sale(3)
    begin = verbs.begin_rebuild(activity_id=42, sku_ids=(7,), run=1)
    assert sale.run(begin) is STALE  # no run's number at the gate
    sale.rebuilding(run=1)
    assert sale.run(begin) is REFUSED  # REBUILDING already: start again from the top
    finish(sale, run=1)
    assert sale.run(begin) is STALE


def test_a_gate_closed_by_a_run_after_a_loss_still_answers_lost(new_sale) -> None:
    sale = new_sale(3)
    sale.client.flushdb()
    close = verbs.close_for_rebuild(activity_id=42, sku_ids=(7,), run=1, loss_noted=True)
    assert sale.run(close) is OK
    assert sale.code("ann") is ReserveCode.GATE_LOST
    assert sale.state().stock == -1
    assert sale.run(verbs.begin_rebuild(activity_id=42, sku_ids=(7,), run=1)) is OK
    assert finish(sale, mark=17) is OK
    assert sale.client.get(keys.mark(42)) == "17"
    assert sale.code("new") is ReserveCode.RESERVED


def test_a_newer_edit_is_not_undone_by_a_rebuild(new_sale) -> None:
    sale = new_sale(3)
    sale.rebuilding()
    sale.version = 8
    sale.edit(limit_per_user=5)
    assert finish(sale) is OK
    assert sale.state().config.limit_per_user == 5


# --- mark


@pytest.mark.parametrize(
    ("at", "to", "answer", "after"),
    [(3, 4, 3, "4"), (4, 4, 4, "4"), (2, 4, 2, "2"), (9, 4, 9, "9"), (None, 4, None, None)],
)
def test_the_mark_moves_by_one_step_only(redis_client, new_sale, at, to, answer, after) -> None:
    sale = new_sale(1)
    if at is None:
        redis_client.delete(keys.mark(42))
    else:
        redis_client.set(keys.mark(42), at)
    assert sale.run(verbs.move_mark(activity_id=42, number=to)) == answer
    assert redis_client.get(keys.mark(42)) == after

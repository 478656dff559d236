"""One test for each rule of the protocol model that the gate's scripts keep, named after it.

A story here is the shortest one that goes wrong without the rule (docs/protocol.md).
"""

import pytest

from inventory import keys, verbs
from inventory.contracts import (
    AdjustCode,
    ConfirmCode,
    GateRebuild,
    GateWriteCode,
    GiveBackCode,
    ReleaseCode,
    ReserveCode,
)
from inventory.states import GateStatus
from tests.fixtures.gate import wish


def finish(sale, *, run: int, status=GateStatus.OPEN, mark=None, epoch=2, units=3, buyers=None):
    gates = [
        GateRebuild(sku_id=7, units=units, epoch=epoch, config=sale.config(), buyers=buyers or {})
    ]
    return sale.run(
        verbs.finish_rebuild(
            activity_id=42, gates=gates, run=run, mark=mark, status=status, version=1
        )
    )


def close_for(sale, run: int, *, loss_noted: bool = False) -> GateWriteCode:
    return sale.run(
        verbs.close_for_rebuild(activity_id=42, sku_ids=(7,), run=run, loss_noted=loss_noted)
    )


def begin(sale, run: int) -> GateWriteCode:
    return sale.run(verbs.begin_rebuild(activity_id=42, sku_ids=(7,), run=run))


def adjust(sale, units: int, epoch: int):
    reply = sale.run(
        verbs.adjust_stock(activity_id=42, sku_id=7, operation_id="op_1", units=units, epoch=epoch)
    )
    return reply.code, reply.units


def test_reserve_once(new_sale) -> None:
    """A late `reserve` of a reservation that was given back must not make it again."""
    sale = new_sale(3)
    request = wish("ann")
    (reply,) = sale.reserve(request)
    assert sale.give_back(reply.reservation) is GiveBackCode.OK
    before = sale.dump()

    (late,) = sale.reserve(request)

    assert late.code is ReserveCode.RESERVATION_ENDED
    assert late.reservation.reservation_id == request.reservation_id
    assert sale.dump() == before


def test_observe_already(new_sale) -> None:
    """Told "already yours", a buyer must not lose it to a give-back of the first request."""
    sale = new_sale(3)
    made = sale.buy("ann")
    assert sale.code("ann") is ReserveCode.ALREADY_RESERVED

    assert sale.give_back(made) is GiveBackCode.REFUSED

    assert sale.holders() == {"ann": made.reservation_id}
    assert sale.stock() == 2


def test_observe_already_within_one_batch(new_sale) -> None:
    sale = new_sale(3)
    first, second = sale.reserve(wish("ann"), wish("ann"))
    assert second.code is ReserveCode.ALREADY_RESERVED
    assert sale.give_back(first.reservation) is GiveBackCode.REFUSED


def test_observe_replayed(new_sale) -> None:
    sale = new_sale(3)
    made = sale.buy("ann", idempotency_key="k")
    assert sale.code("ann", idempotency_key="k") is ReserveCode.REQUEST_REPLAYED
    assert sale.give_back(made) is GiveBackCode.REFUSED


def test_release_answer_tells_refused_from_gone(new_sale) -> None:
    """What admission needs to say 503 rather than 202: RELEASED and MISSING are no REFUSED."""
    sale = new_sale(3)
    alive, ended, gone = sale.buy("ann"), sale.buy("bob"), sale.buy("cat")
    sale.mark_sent(alive)
    sale.release(ended)
    sale.client.delete(keys.reservation(42, gone.reservation_id))
    assert sale.give_back(alive) is GiveBackCode.REFUSED
    assert sale.give_back(ended) is GiveBackCode.RELEASED
    assert sale.give_back(gone) is GiveBackCode.MISSING


def test_buyers_decide_that_units_go_back_without_a_hash(new_sale) -> None:
    """After a rebuild the reservation stands in `buyers` only, its hash was lost."""
    sale = new_sale(3)
    made = sale.buy("ann")
    sale.client.delete(keys.reservation(42, made.reservation_id))
    reply = sale.release(made)
    assert (reply.code, reply.given_back) == (ReleaseCode.OK, 1)
    assert (sale.stock(), sale.holders()) == (3, {})


def test_buyers_decide_that_a_strangers_units_stay(new_sale) -> None:
    """The hash lives, but a rebuild has left its buyer out: nothing to give back."""
    sale = new_sale(3)
    old = sale.buy("ann")
    sale.rebuilding()
    finish(sale, run=1, units=2, buyers={"ann": "rsv_newer"})
    reply = sale.release(old)
    assert (reply.code, reply.given_back) == (ReleaseCode.OK, 0)
    assert (sale.stock(), sale.holders()) == (2, {"ann": "rsv_newer"})
    assert sale.stored(old.reservation_id)["status"] == "RELEASED"


def test_buyers_decide_even_for_a_released_hash(new_sale) -> None:
    """Ordered though released (a definite failure that was stored): its cancel gives back."""
    sale = new_sale(3)
    made = sale.buy("ann")
    sale.give_back(made)
    sale.client.decr(keys.stock(42, 7))  # the reconciler's repair
    sale.client.hset(keys.buyers(42, 7), "ann", made.reservation_id)
    assert sale.release(made).given_back == 1
    assert sale.stock() == 3


@pytest.mark.parametrize("state", ["lost", "rebuilding"])
def test_buyers_decide_not_while_nobody_knows_them(new_sale, state) -> None:
    sale = new_sale(3)
    made = sale.buy("ann")
    if state == "lost":
        sale.client.flushdb()
    else:
        sale.rebuilding()
    before = sale.dump()
    assert sale.release(made).code is ReleaseCode.RETRY
    assert sale.dump() == before


def test_rejected_release_of_what_is_still_open(new_sale) -> None:
    """DONE in PostgreSQL (a rebuild said so), open at the gate: released all the same, once."""
    sale = new_sale(3)
    made = sale.buy("ann")
    sale.rebuilding()
    finish(sale, run=1, units=3, buyers={})
    assert made.reservation_id in sale.opened()
    assert sale.release(made).given_back == 0
    assert (sale.opened(), sale.stock()) == ({}, 3)


def test_confirm_waits_while_rebuilding(new_sale) -> None:
    sale = new_sale(3)
    made = sale.buy("ann")
    sale.rebuilding()
    before = sale.dump()
    assert sale.confirm(made) is ConfirmCode.RETRY
    assert sale.dump() == before


def test_ops_epoch(new_sale) -> None:
    """An operation that a rebuild has overtaken must not move units a second time."""
    sale = new_sale(3)
    sale.rebuilding()
    assert adjust(sale, 5, epoch=1) == (AdjustCode.RETRY, 0)
    finish(sale, run=1, epoch=2, units=8)  # PostgreSQL had booked the top-up
    assert adjust(sale, 5, epoch=1) == (AdjustCode.WRONG_EPOCH, 0)
    assert sale.stock() == 8


def test_ops_deleted(new_sale) -> None:
    """A cut taken but not booked starts over: the new epoch must not remember it."""
    sale = new_sale(3)
    assert adjust(sale, -2, epoch=1) == (AdjustCode.OK, -2)
    sale.rebuilding()
    finish(sale, run=1, epoch=2, units=3)
    assert sale.client.exists(keys.ops(42, 7)) == 0
    assert adjust(sale, -2, epoch=2) == (AdjustCode.OK, -2)
    assert sale.stock() == 1


@pytest.mark.parametrize("status", [GateStatus.CLOSED, GateStatus.PAUSED])
def test_stop_field_is_set_in_any_status(new_sale, status) -> None:
    """A stop in REBUILDING leaves the status alone, and the last script obeys it."""
    sale = new_sale(3)
    sale.rebuilding()
    assert sale.close(status) is GateWriteCode.OK
    state = sale.state()
    assert (state.status, state.stopped) == ("REBUILDING", True)

    # The run read OPEN from PostgreSQL before the stop was written there.
    assert finish(sale, run=1, status=GateStatus.OPEN) is GateWriteCode.OK

    state = sale.state()
    assert (state.status, state.stopped) == ("CLOSED", True)
    assert sale.code("ann") is ReserveCode.CLOSED
    assert sale.open(first=False) is GateWriteCode.OK  # only the operators' open clears it
    assert sale.state().stopped is False


def test_stop_field_alone_refuses_new_buyers(new_sale) -> None:
    sale = new_sale(3)
    sale.client.hset(keys.gate(42, 7), "stopped", "1")
    assert sale.state().status == "OPEN"
    assert sale.code("ann") is ReserveCode.CLOSED


@pytest.mark.parametrize("status", [GateStatus.CLOSED, GateStatus.PAUSED])
def test_stop_stands(new_sale, status) -> None:
    """A sale that PostgreSQL holds closed is not open after a rebuild."""
    sale = new_sale(3)
    sale.rebuilding()
    finish(sale, run=1, status=status)
    state = sale.state()
    assert (state.status, state.stopped) == (status.value, True)
    assert sale.code("ann") is ReserveCode.CLOSED


def test_open_refused(new_sale) -> None:
    """While a run's number stands at the gate, no open gets between its steps."""
    sale = new_sale(3)
    assert close_for(sale, 1) is GateWriteCode.OK
    assert sale.open(version=9, first=False) is GateWriteCode.REFUSED
    assert begin(sale, 1) is GateWriteCode.OK
    assert sale.open(version=9, first=False) is GateWriteCode.REBUILDING
    assert sale.state().status == "REBUILDING"
    assert finish(sale, run=1, status=GateStatus.CLOSED) is GateWriteCode.OK
    assert sale.open(version=9, first=False) is GateWriteCode.OK


def test_rebuild_fence(new_sale) -> None:
    """A newer run stops an older one at each of its scripts."""
    sale = new_sale(3)
    assert close_for(sale, 1) is GateWriteCode.OK
    assert close_for(sale, 2) is GateWriteCode.OK
    assert close_for(sale, 1) is GateWriteCode.STALE
    assert begin(sale, 1) is GateWriteCode.STALE
    assert begin(sale, 2) is GateWriteCode.OK
    assert finish(sale, run=1) is GateWriteCode.STALE
    assert finish(sale, run=2) is GateWriteCode.OK
    assert close_for(sale, 1) is GateWriteCode.STALE  # the number stays as the newest seen
    assert sale.state().status == "OPEN"


def test_rebuild_fence_last_script_runs_only_in_rebuilding(new_sale) -> None:
    sale = new_sale(3)
    sale.buy("ann")
    close_for(sale, 1)
    before = sale.dump()
    assert finish(sale, run=1) is GateWriteCode.REFUSED
    assert sale.dump() == before


def test_rebuild_fence_takes_over_a_crashed_run(new_sale) -> None:
    sale = new_sale(3)
    sale.rebuilding(run=1)  # and crashes
    assert close_for(sale, 2) is GateWriteCode.OK
    assert sale.state().status == "CLOSED"
    assert begin(sale, 2) is GateWriteCode.OK


def test_loss_row(new_sale) -> None:
    """A missing gate is written only by a run that began with the loss noted."""
    sale = new_sale(3)
    sale.client.flushdb()
    assert close_for(sale, 1, loss_noted=False) is GateWriteCode.MISSING
    assert sale.dump() == {}
    assert begin(sale, 1) is GateWriteCode.MISSING
    assert finish(sale, run=1) is GateWriteCode.MISSING
    assert sale.dump() == {}
    assert close_for(sale, 2, loss_noted=True) is GateWriteCode.OK
    assert sale.code("ann") is ReserveCode.GATE_LOST


def test_loss_starts_run(new_sale) -> None:
    """The script that closes an older copy leaves the number: older runs, opens are refused."""
    sale = new_sale(3)
    assert close_for(sale, 5, loss_noted=True) is GateWriteCode.OK
    assert sale.state().rebuild_run == 5
    assert close_for(sale, 4) is GateWriteCode.STALE
    assert sale.open(version=9, first=False) is GateWriteCode.REFUSED


def test_mark_after_loss(new_sale) -> None:
    """A run that knew of no loss must not write the mark: it would hide an older copy."""
    sale = new_sale(3)
    sale.client.set(keys.mark(42), 3)
    sale.rebuilding(run=1)
    finish(sale, run=1, mark=None)
    assert sale.client.get(keys.mark(42)) == "3"
    sale.rebuilding(run=2)
    finish(sale, run=2, mark=9, epoch=3)
    assert sale.client.get(keys.mark(42)) == "9"


def test_a_holder_is_never_refused(new_sale) -> None:
    """Invariant 7, at the gate's worst moment."""
    sale = new_sale(1)
    made = sale.buy("ann")
    sale.rebuilding()
    (reply,) = sale.reserve(wish("ann", quantity=99))
    assert reply.code is ReserveCode.ALREADY_RESERVED
    assert reply.reservation == made

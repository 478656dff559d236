"""Operators change how many units a sale has: booked once, whoever competes."""

import threading

import pytest
from django.db import connections

from inventory import operation_driver, operations
from inventory.contracts import AdjustCode
from inventory.errors import OperationRefused
from inventory.gate import Gate
from inventory.models import Sku, Stock
from tests.fixtures.rebuild import Crashed, crash_at

pytestmark = pytest.mark.django_db(transaction=True)  # the order of commits matters here


def test_a_top_up_is_booked_with_its_row(new_sale, gate_down) -> None:
    """What adds units commits in PostgreSQL first."""
    sale = new_sale()
    with gate_down():
        top_up = operations.request_top_up(
            activity_id=sale.activity_id, sku_id=sale.sku_id, units=5, reason="more"
        )
    assert (sale.final.available, sale.final.topped_up, sale.state().stock) == (15, 5, 10)
    operations.drive()
    assert sale.operation(top_up).units_done == 5
    sale.assert_conserved()


def test_a_cut_takes_from_the_gate_first_and_books_what_it_took(new_sale, monkeypatch) -> None:
    sale = new_sale()
    sale.buy("ann")
    crash_at(monkeypatch, "operation.after_gate")
    with pytest.raises(Crashed):
        operations.request_cut(
            activity_id=sale.activity_id,
            sku_id=sale.sku_id,
            units=50,
            operation_id="op_cut",
            reason="broken",
        )
    assert (sale.state().stock, sale.final.available) == (0, 10)  # taken, not booked

    operations.drive()

    cut = sale.operation("op_cut")
    assert (cut.status, cut.units, cut.units_done) == ("DONE", 50, 9)
    assert (sale.final.available, sale.final.cut) == (1, 9)  # ann's unit stays
    assert sale.ledger() == [("INITIAL", 10), ("CUT", -9)]


def test_a_cut_of_nothing_is_refused(new_sale) -> None:
    sale = new_sale(units=1)
    sale.buy("ann")
    cut = operations.request_cut(
        activity_id=sale.activity_id, sku_id=sale.sku_id, units=1, reason="broken"
    )
    assert (sale.operation(cut).status, sale.operation(cut).units_done) == ("REFUSED", 0)
    assert sale.ledger() == [("INITIAL", 1)]


def test_a_cut_of_more_than_is_available_is_not_booked(new_sale) -> None:
    """An older copy of Redis promised too much: the operation waits for the rebuild."""
    sale = new_sale()
    Stock.objects.filter(pk=sale.sku_id).update(available=2)
    cut = operations.request_cut(
        activity_id=sale.activity_id, sku_id=sale.sku_id, units=5, reason="broken"
    )
    assert sale.operation(cut).status == "REQUESTED"
    assert "rebuild_gate" in sale.operation(cut).note
    assert (sale.final.available, sale.final.cut) == (2, 0)
    operations.drive()
    assert (sale.operation(cut).status, sale.state().stock) == ("REQUESTED", 5)


@pytest.mark.parametrize("kind", ["top_up", "cut"])
def test_ops_epoch_holds_for_the_booking_too(new_sale, monkeypatch, kind) -> None:
    """A rebuild between the gate and the booking: nothing is booked by the old epoch."""
    sale = new_sale()
    run = Gate.run

    def competitor(self, call):
        reply = run(self, call)
        if call.script == "adjust_stock":
            monkeypatch.setattr(Gate, "run", run)
            Sku.objects.filter(pk=sale.sku_id).update(epoch=99)
        return reply

    monkeypatch.setattr(Gate, "run", competitor)
    operation = getattr(operations, f"request_{kind}")(
        activity_id=sale.activity_id, sku_id=sale.sku_id, units=4, reason="because"
    )
    assert sale.operation(operation).status == "REQUESTED"
    assert (sale.final.cut, sale.operation(operation).units_done) == (0, None)
    operations.drive()
    assert sale.operation(operation).note == "the gate answered WRONG_EPOCH"


@pytest.mark.parametrize("units", [0, -3])
@pytest.mark.parametrize("kind", ["top_up", "cut"])
def test_units_must_be_positive(new_sale, kind, units) -> None:
    sale = new_sale()
    with pytest.raises(OperationRefused, match="at least 1"):
        getattr(operations, f"request_{kind}")(
            activity_id=sale.activity_id, sku_id=sale.sku_id, units=units, reason="because"
        )


def test_another_sales_sku_is_refused(new_sale) -> None:
    sale, other = new_sale(), new_sale()
    with pytest.raises(OperationRefused, match="has no SKU"):
        operations.request_top_up(
            activity_id=sale.activity_id, sku_id=other.sku_id, units=1, reason="more"
        )


@pytest.mark.parametrize("kind", ["top_up", "cut"])
def test_two_drivers_at_once_move_units_once(new_sale, monkeypatch, gate_down, kind) -> None:
    """Both have the gate's answer before either books."""
    sale = new_sale()
    with gate_down():
        operation = getattr(operations, f"request_{kind}")(
            activity_id=sale.activity_id, sku_id=sale.sku_id, units=4, reason="because"
        )
    both = threading.Barrier(2, timeout=10)
    run, codes, results = Gate.run, [], []

    def together(self, call):
        reply = run(self, call)
        codes.append(reply.code)
        both.wait()
        return reply

    monkeypatch.setattr(Gate, "run", together)

    def work() -> None:
        results.append(operation_driver.drive_operation(operation))
        connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    monkeypatch.setattr(Gate, "run", run)

    assert sorted(codes) == [AdjustCode.OK, AdjustCode.REPEATED]
    assert [r.value for r in results] == ["DONE", "DONE"]
    sale.assert_conserved()
    assert sale.final.available == {"top_up": 14, "cut": 6}[kind]
    assert len(sale.ledger()) == 2

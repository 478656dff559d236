"""Operations interrupted by a crash, a competitor, a lost gate or a rebuild: made up or fenced."""

import pytest
from django.db import connection
from django.db.models import F
from django.utils import timezone

from inventory import keys, operation_driver, operations, verbs
from inventory.contracts import GateLoad
from inventory.errors import GateUnavailable, OperationRefused
from inventory.gate import Gate, gate
from inventory.gate_status import report_gate
from inventory.models import Activity, GateOperation, Sku
from inventory.operations import EditWish
from inventory.selectors import activity_record
from inventory.states import OperationKind
from tests.fixtures.rebuild import Crashed, crash_at

pytestmark = pytest.mark.django_db(transaction=True)  # the order of commits matters here


@pytest.mark.parametrize("point", ["operation.after_row", "operation.after_gate"])
@pytest.mark.parametrize("kind", ["top_up", "cut", "stop", "edit"])
def test_a_crash_anywhere_is_made_up_by_the_scanner(new_sale, monkeypatch, kind, point) -> None:
    sale = new_sale()
    args = {"activity_id": sale.activity_id, "reason": "because", "operation_id": "op_x"}
    units = {"sku_id": sale.sku_id, "units": 4}
    calls = {
        "top_up": lambda: operations.request_top_up(**args, **units),
        "cut": lambda: operations.request_cut(**args, **units),
        "stop": lambda: operations.request_stop(**args),
        "edit": lambda: operations.request_edit(**args, wish=EditWish(max_open=5)),
    }
    crash_at(monkeypatch, point)
    with pytest.raises(Crashed):
        calls[kind]()
    assert sale.operation("op_x").status == "REQUESTED"

    assert operations.drive() == 1

    assert sale.operation("op_x").status == "DONE"
    assert operations.drive() == 0
    sale.assert_conserved()
    expected = {"top_up": 14, "cut": 6, "stop": 10, "edit": 10}[kind]
    assert sale.final.available == expected
    assert sale.state().config.max_open == (5 if kind == "edit" else 20_000)
    assert sale.state().stopped is (kind == "stop")


def test_a_crash_in_warm_up_is_made_up_too(new_draft, monkeypatch) -> None:
    sale = new_draft()
    crash_at(monkeypatch, "operation.after_row")
    with pytest.raises(Crashed):
        operations.warm_up(activity_id=sale.activity_id, operation_id="op_w")
    with pytest.raises(OperationRefused, match="NOT_LOADED"):
        operations.request_open(activity_id=sale.activity_id, reason="go")
    assert operations.drive() == 1
    operations.request_open(activity_id=sale.activity_id, reason="go")
    sale.assert_conserved()


def test_stop_row_is_written_whatever_the_gate_does(new_sale, gate_down) -> None:
    """Rule stop-row: PostgreSQL's status changes with the row; the gate follows when it can."""
    sale = new_sale()
    with gate_down():
        stop = operations.request_stop(activity_id=sale.activity_id, reason="wrong price")
        assert (sale.row.status, sale.operation(stop).status) == ("CLOSED", "REQUESTED")
        with pytest.raises(GateUnavailable):
            operations.drive()
    assert sale.state().status == "OPEN"

    assert operations.drive() == 1

    assert (sale.state().status, sale.operation(stop).status) == ("CLOSED", "DONE")


def test_a_newer_status_replaces_an_older_one_on_its_way(new_sale, gate_down) -> None:
    sale = new_sale()
    with gate_down():
        pause = operations.request_pause(activity_id=sale.activity_id, reason="wait")
        close = operations.request_close(activity_id=sale.activity_id, reason="over")
    assert sale.operation(pause).status == "REFUSED"
    assert sale.operation(pause).note == f"replaced by {close}"
    operations.drive()
    assert sale.state().status == "CLOSED"


def test_a_stalled_open_is_fenced_at_the_gate(new_sale, monkeypatch) -> None:
    """The driver of an open stalls before its script; stop comes and goes; the open is STALE."""
    sale = new_sale()
    operations.request_pause(activity_id=sale.activity_id, reason="wait")
    run = Gate.run

    def competitor(self, call):
        if call.script == "open_gate":
            monkeypatch.setattr(Gate, "run", run)
            operations.request_stop(activity_id=sale.activity_id, reason="wrong price")
        return run(self, call)

    monkeypatch.setattr(Gate, "run", competitor)
    resume = operations.request_resume(activity_id=sale.activity_id, reason="go on")

    assert sale.operation(resume).status == "REFUSED"
    assert (sale.row.status, sale.state().status, sale.state().stopped) == (
        "CLOSED",
        "CLOSED",
        True,
    )


def test_two_drivers_of_a_warm_up_end_with_one_epoch(new_draft, monkeypatch) -> None:
    sale = new_draft()
    run = Gate.run
    nested = []

    def competitor(self, call):
        if call.script == "load_gate" and not nested:
            nested.append(True)
            operation_driver.drive_operation("op_w")  # a newer load overtakes this one
        return run(self, call)

    monkeypatch.setattr(Gate, "run", competitor)
    operations.warm_up(activity_id=sale.activity_id, operation_id="op_w")
    operations.drive()
    assert sale.operation("op_w").status == "DONE"
    assert sale.state().epoch == Sku.objects.get(pk=sale.sku_id).epoch
    operations.request_open(activity_id=sale.activity_id, reason="go")
    assert sale.state().status == "OPEN"
    sale.assert_conserved()


def test_a_warm_up_whose_epoch_was_passed_starts_over(new_draft, monkeypatch) -> None:
    """Another driver took the next epoch and crashed: this gate could never be opened."""
    sale = new_draft()
    run = Gate.run

    def competitor(self, call):
        reply = run(self, call)
        if call.script == "load_gate":
            Sku.objects.filter(pk=sale.sku_id).update(epoch=F("epoch") + 1)
        return reply

    monkeypatch.setattr(Gate, "run", competitor)
    operations.warm_up(activity_id=sale.activity_id, operation_id="op_w")
    assert sale.operation("op_w").status == "REQUESTED"
    with pytest.raises(OperationRefused, match="still being warmed up"):
        operations.request_open(activity_id=sale.activity_id, reason="go")
    monkeypatch.setattr(Gate, "run", run)
    operations.drive()
    assert sale.operation("op_w").status == "DONE"
    assert sale.state().epoch == Sku.objects.get(pk=sale.sku_id).epoch


def test_an_ill_row_does_not_hold_the_others_up(new_sale) -> None:
    sale = new_sale()
    GateOperation.objects.create(
        operation_id="op_ill", activity=sale.row, kind=OperationKind.EDIT, version=1, reason="x"
    )
    GateOperation.objects.create(
        operation_id="op_good", activity=sale.row, kind=OperationKind.STOP, version=9, reason="x"
    )
    assert operations.drive() == 1
    assert sale.operation("op_good").status == "DONE"
    assert sale.operation("op_ill").status == "REQUESTED"


def test_an_older_edit_that_arrives_late_is_refused_at_the_gate(new_sale, monkeypatch) -> None:
    sale = new_sale()
    args = {"activity_id": sale.activity_id, "reason": "because"}
    crash_at(monkeypatch, "operation.after_row")
    with pytest.raises(Crashed):
        operations.request_edit(**args, wish=EditWish(max_open=1), operation_id="op_old")
    operations.request_edit(**args, wish=EditWish(max_pending=2), operation_id="op_new")
    operations.drive()
    assert (sale.operation("op_old").status, sale.operation("op_new").status) == (
        "REFUSED",
        "DONE",
    )
    config = sale.state().config
    assert (config.max_open, config.max_pending) == (1, 2)  # the newer one carries both


def test_a_lost_gate_is_told_and_not_opened(new_sale, caplog) -> None:
    sale = new_sale()
    operations.request_pause(activity_id=sale.activity_id, reason="wait")
    sale.client.flushdb()

    assert report_gate(activity_record(sale.activity_id)).condition == "GATE_LOST"
    assert sale.buy("ann").code.name == "GATE_LOST"
    with pytest.raises(OperationRefused, match="GATE_LOST"):
        operations.request_resume(activity_id=sale.activity_id, reason="go on")
    stop = operations.request_stop(activity_id=sale.activity_id, reason="lost")

    assert (sale.row.status, sale.operation(stop).status) == ("CLOSED", "REQUESTED")
    assert sale.operation(stop).note == "GATE_LOST: waits for rebuild_gate"
    assert sale.client.dbsize() == 0
    assert "GATE_LOST" in caplog.text


def test_a_gate_of_an_older_epoch_counts_as_lost(new_sale) -> None:
    sale = new_sale()
    sale.client.hset(keys.gate(sale.activity_id, sale.sku_id), "epoch", 0)
    assert report_gate(activity_record(sale.activity_id)).condition == "GATE_LOST"


@pytest.mark.parametrize("where", ["unfinished", "loss noted", "gate"])
def test_open_refused_while_a_rebuild_is_unfinished(new_sale, where) -> None:
    """Rule open-refused, in PostgreSQL and at the gate."""
    sale = new_sale()
    operations.request_pause(activity_id=sale.activity_id, reason="wait")
    rows = Activity.objects.filter(pk=sale.activity_id)
    if where == "unfinished":
        rows.update(rebuild_unfinished=True)
    elif where == "loss noted":
        rows.update(loss_noted_at=timezone.now())
    else:
        sale.client.hset(keys.gate(sale.activity_id, sale.sku_id), "rebuild_run", 3)
    with pytest.raises(OperationRefused, match="rebuil"):
        operations.request_resume(activity_id=sale.activity_id, reason="go on")
    assert (sale.row.status, sale.state().status) == ("PAUSED", "PAUSED")


def test_an_open_whose_gate_began_a_rebuild_waits(new_sale, monkeypatch) -> None:
    sale = new_sale()
    operations.request_pause(activity_id=sale.activity_id, reason="wait")
    run = Gate.run
    key = keys.gate(sale.activity_id, sale.sku_id)

    def competitor(self, call):
        if call.script == "open_gate":
            sale.client.hset(key, "rebuild_run", 3)
        return run(self, call)

    monkeypatch.setattr(Gate, "run", competitor)
    resume = operations.request_resume(activity_id=sale.activity_id, reason="go on")
    assert (sale.operation(resume).status, sale.state().status) == ("REQUESTED", "PAUSED")
    monkeypatch.setattr(Gate, "run", run)
    sale.client.hset(key, "rebuild_run", 0)
    assert operations.drive() == 1
    assert sale.state().status == "OPEN"


def test_a_request_is_durable_before_the_gate_is_asked(new_sale, monkeypatch) -> None:
    sale = new_sale()
    run, nested = Gate.run, []
    monkeypatch.setattr(
        Gate,
        "run",
        lambda self, call: nested.append(connection.in_atomic_block) or run(self, call),
    )
    operations.request_stop(activity_id=sale.activity_id, reason="because")
    assert nested == [False]


def test_a_gate_that_another_database_left_is_stopped_and_never_opened(new_draft, caplog) -> None:
    """PostgreSQL was made anew, Redis was kept: its gate sells under an id that is used again."""
    sale = new_draft(skus=2)
    config = activity_record(sale.activity_id).gate_config(
        activity_record(sale.activity_id).skus[0]
    )
    loads = [GateLoad(sku_id=one, units=9, epoch=1, config=config) for one in sale.sku_ids]
    gate().run(verbs.load_gate(activity_id=sale.activity_id, gates=loads, version=1))
    epochs = dict.fromkeys(sale.sku_ids, 1)
    gate().run(verbs.open_gate(activity_id=sale.activity_id, epochs=epochs, version=50, first=True))

    operation = operations.warm_up(activity_id=sale.activity_id)

    assert sale.operation(operation).status == "REFUSED"
    assert "FOREIGN_GATE" in caplog.text
    assert [sale.state(sku_id).status for sku_id in sale.sku_ids] == ["CLOSED", "CLOSED"]
    Sku.objects.filter(activity_id=sale.activity_id).update(epoch=1)
    with pytest.raises(OperationRefused, match="its last load failed"):
        operations.request_open(activity_id=sale.activity_id, reason="go")
    assert (sale.row.status, sale.row.opened_at) == ("WARM", None)
    sale.client.flushdb()
    operations.warm_up(activity_id=sale.activity_id)
    operations.request_open(activity_id=sale.activity_id, reason="go")
    sale.assert_conserved()


def test_a_load_of_a_sale_that_was_opened_meanwhile_stops_nothing(new_draft, monkeypatch) -> None:
    """A driver stalls before its load; another one ends it, and the sale opens."""
    sale = new_draft()
    run, stalled = Gate.run, []

    def competitor(self, call):
        if call.script == "load_gate" and not stalled:
            stalled.append(True)
            operations.drive()
            operations.request_open(activity_id=sale.activity_id, reason="go")
        return run(self, call)

    monkeypatch.setattr(Gate, "run", competitor)
    operations.warm_up(activity_id=sale.activity_id)

    assert (sale.row.status, sale.state().status) == ("OPEN", "OPEN")


def test_an_edit_during_warm_up_is_not_lost(new_draft, monkeypatch) -> None:
    """It finds no gate and leaves it to the load, which has read the old limit already."""
    sale = new_draft()
    run, edited = Gate.run, []

    def competitor(self, call):
        if call.script == "load_gate" and not edited:
            edited.append(
                operations.request_edit(
                    activity_id=sale.activity_id,
                    wish=EditWish(max_open=7, limit_per_user={sale.sku_id: 3}),
                    reason="fewer",
                )
            )
        return run(self, call)

    monkeypatch.setattr(Gate, "run", competitor)
    operations.warm_up(activity_id=sale.activity_id, operation_id="op_w")
    operations.drive()

    assert sale.operation("op_w").status == sale.operation(edited[0]).status == "DONE"
    config = sale.state().config
    assert (config.max_open, config.limit_per_user) == (7, 3)
    operations.request_open(activity_id=sale.activity_id, reason="go")
    sale.assert_conserved()


def test_a_sale_closed_before_its_first_open_can_lose_its_gate(new_draft) -> None:
    sale = new_draft()
    operations.warm_up(activity_id=sale.activity_id)
    operations.request_close(activity_id=sale.activity_id, reason="not yet")
    sale.client.flushdb()

    operation = operations.warm_up(activity_id=sale.activity_id)

    assert (sale.operation(operation).status, sale.row.status) == ("DONE", "CLOSED")
    assert (sale.state().status, sale.state().stock) == ("CLOSED", 10)
    operations.request_open(activity_id=sale.activity_id, reason="now")
    assert sale.state().status == "OPEN"
    sale.assert_conserved()

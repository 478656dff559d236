"""Operators' changes: rows in PostgreSQL, then the gate; crashes and competitors in between."""

import threading
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import connection, connections
from django.db.models import F
from django.utils import timezone

import faultpoint
from inventory import keys, operation_driver, operations, verbs
from inventory.contracts import AdjustCode
from inventory.errors import GateUnavailable, OperationRefused
from inventory.gate import Gate, gate
from inventory.gate_status import report_gate
from inventory.models import Activity, GateOperation, Sku, Stock, StockLedger
from inventory.operations import EditWish
from inventory.selectors import activity_record
from inventory.states import OperationKind
from tests.fixtures.gate import wish

pytestmark = pytest.mark.django_db(transaction=True)  # the order of commits matters here


def buy(sale, user: str):
    (reply,) = gate().run(
        verbs.reserve(
            activity_id=sale.activity_id,
            requests=[wish(user, sku_id=sale.sku_id)],
            lease_owner="web",
            lease_ms=60_000,
        )
    )
    return reply


@pytest.fixture
def gate_down(monkeypatch):
    """`with gate_down():` the gate cannot be reached."""

    @contextmanager
    def down():
        def fail(self, call):
            raise GateUnavailable("down")

        with monkeypatch.context() as patch:
            patch.setattr(Gate, "run", fail)
            yield

    return down


class Crash(Exception):
    """Stands for the end of the process at a fault point."""


@pytest.fixture
def crash_at(monkeypatch):
    """Crash at the first hit of a point."""

    def arm(point: str) -> None:
        hits = []

        def hit(name: str) -> None:
            if name == point and not hits:
                hits.append(name)
                raise Crash(point)

        monkeypatch.setattr(faultpoint, "hit", hit)

    return arm


# --- the life of a sale


def test_from_draft_to_closed(new_draft) -> None:
    sale = new_draft(units=10, skus=2)
    assert sale.state() is None

    warm = operations.warm_up(activity_id=sale.activity_id)
    assert (sale.row.status, sale.operation(warm).status) == ("WARM", "DONE")
    assert (sale.final.available, sale.final.initial) == (10, 10)
    assert sale.ledger() == [("INITIAL", 10), ("INITIAL", 10)]
    assert (sale.state().status, sale.row.opened_at) == ("CLOSED", None)
    assert buy(sale, "ann").code.name == "CLOSED"

    for request, row, at_gate in [
        (operations.request_open, "OPEN", "OPEN"),
        (operations.request_pause, "PAUSED", "PAUSED"),
        (operations.request_resume, "OPEN", "OPEN"),
        (operations.request_close, "CLOSED", "CLOSED"),
        (operations.request_open, "OPEN", "OPEN"),
        (operations.request_stop, "CLOSED", "CLOSED"),
    ]:
        operation = request(activity_id=sale.activity_id, reason="because")
        assert sale.operation(operation).status == "DONE"
        assert sale.row.status == row
        for sku_id in sale.sku_ids:
            assert sale.state(sku_id).status == at_gate
            assert sale.state(sku_id).stopped is (row != "OPEN")
    assert sale.row.opened_at is not None
    sale.assert_conserved()


@pytest.mark.parametrize(
    ("request_", "allowed"),
    [
        ("request_open", {"WARM", "CLOSED"}),
        ("request_pause", {"OPEN"}),
        ("request_resume", {"PAUSED"}),
        ("request_close", {"WARM", "OPEN", "PAUSED"}),
        ("request_stop", {"WARM", "OPEN", "PAUSED", "CLOSED"}),
    ],
)
def test_which_change_each_status_allows(new_sale, request_, allowed) -> None:
    sale = new_sale()
    for status in ("DRAFT", "WARM", "OPEN", "PAUSED", "CLOSED", "SETTLED"):
        Activity.objects.filter(pk=sale.activity_id).update(status=status)
        before = GateOperation.objects.count()
        if status in allowed:
            getattr(operations, request_)(activity_id=sale.activity_id, reason="because")
            assert GateOperation.objects.count() == before + 1
        else:
            with pytest.raises(OperationRefused, match=status):
                getattr(operations, request_)(activity_id=sale.activity_id, reason="because")
            assert (GateOperation.objects.count(), sale.row.status) == (before, status)


def test_a_sale_that_can_sell_nothing_is_not_warmed_up(new_draft) -> None:
    sale = new_draft(units=0, ends_at=timezone.now() - timedelta(seconds=1))
    with pytest.raises(OperationRefused, match="no units, its window has ended"):
        operations.warm_up(activity_id=sale.activity_id)
    assert (sale.row.status, StockLedger.objects.count()) == ("DRAFT", 0)


def test_a_reason_and_a_sale_are_needed(new_sale) -> None:
    sale = new_sale()
    with pytest.raises(OperationRefused, match="reason"):
        operations.request_pause(activity_id=sale.activity_id, reason="  ")
    with pytest.raises(OperationRefused, match="no activity 999"):
        operations.request_pause(activity_id=999, reason="because")
    assert sale.row.status == "OPEN"


def test_warm_up_again_before_the_open_loads_the_same_stock(new_draft) -> None:
    sale = new_draft()
    operations.warm_up(activity_id=sale.activity_id)
    operations.request_top_up(
        activity_id=sale.activity_id, sku_id=sale.sku_id, units=5, reason="more"
    )
    sale.client.flushdb()
    waiting = operations.request_top_up(
        activity_id=sale.activity_id, sku_id=sale.sku_id, units=2, reason="more"
    )
    assert sale.operation(waiting).status == "REQUESTED"

    operations.warm_up(activity_id=sale.activity_id)
    operations.drive()

    assert sale.operation(waiting).status == "DONE"
    assert sale.ledger() == [("INITIAL", 10), ("TOP_UP", 5), ("TOP_UP", 2)]
    sale.assert_conserved()
    assert sale.state().stock == 17


def test_warm_up_never_loads_a_sale_that_was_opened(new_sale) -> None:
    sale = new_sale()
    buy(sale, "ann")
    with pytest.raises(OperationRefused, match="rebuild_gate"):
        operations.warm_up(activity_id=sale.activity_id)
    assert sale.state().stock == 9


# --- the same request twice


def test_a_repeated_operation_id_changes_nothing(new_sale) -> None:
    sale = new_sale()
    args = {"activity_id": sale.activity_id, "sku_id": sale.sku_id, "reason": "more"}
    for _ in range(3):
        operations.request_top_up(**args, units=5, operation_id="op_one")
    with pytest.raises(OperationRefused, match="another request"):
        operations.request_top_up(**args, units=6, operation_id="op_one")
    assert (sale.final.available, sale.state().stock) == (15, 15)
    assert sale.ledger() == [("INITIAL", 10), ("TOP_UP", 5)]


# --- crashes


@pytest.mark.parametrize("point", ["operation.after_row", "operation.after_gate"])
@pytest.mark.parametrize("kind", ["top_up", "cut", "stop", "edit"])
def test_a_crash_anywhere_is_made_up_by_the_scanner(new_sale, crash_at, kind, point) -> None:
    sale = new_sale()
    args = {"activity_id": sale.activity_id, "reason": "because", "operation_id": "op_x"}
    units = {"sku_id": sale.sku_id, "units": 4}
    calls = {
        "top_up": lambda: operations.request_top_up(**args, **units),
        "cut": lambda: operations.request_cut(**args, **units),
        "stop": lambda: operations.request_stop(**args),
        "edit": lambda: operations.request_edit(**args, wish=EditWish(max_open=5)),
    }
    crash_at(point)
    with pytest.raises(Crash):
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


def test_a_crash_in_warm_up_is_made_up_too(new_draft, crash_at) -> None:
    sale = new_draft()
    crash_at("operation.after_row")
    with pytest.raises(Crash):
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


# --- units


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


def test_a_cut_takes_from_the_gate_first_and_books_what_it_took(new_sale, crash_at) -> None:
    sale = new_sale()
    buy(sale, "ann")
    crash_at("operation.after_gate")
    with pytest.raises(Crash):
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
    buy(sale, "ann")
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


# --- two drivers at once


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


# --- edits


def test_an_edit_reaches_row_and_gate(new_sale) -> None:
    sale = new_sale(skus=2)
    ends_at = timezone.now().replace(microsecond=0) + timedelta(hours=9)
    operations.request_edit(
        activity_id=sale.activity_id,
        wish=EditWish(
            ends_at=ends_at, validity_s=60, max_open=7, limit_per_user={sale.sku_ids[1]: 3}
        ),
        reason="longer",
    )
    row = sale.row
    assert (row.ends_at, row.validity_s, row.max_open) == (ends_at, 60, 7)
    config = sale.state(sale.sku_ids[1]).config
    assert (config.ends_ms, config.validity_ms, config.max_open, config.limit_per_user) == (
        ends_at.timestamp() * 1000,
        60_000,
        7,
        3,
    )
    assert sale.state(sale.sku_ids[0]).config.limit_per_user == 1


def test_an_edit_of_an_older_view_is_refused(new_sale) -> None:
    sale = new_sale()
    seen = sale.row.version
    for number, fine in [(1, True), (2, False)]:
        args = {
            "activity_id": sale.activity_id,
            "wish": EditWish(max_open=number),
            "expected_version": seen,
            "reason": "because",
        }
        if fine:
            operations.request_edit(**args)
        else:
            with pytest.raises(OperationRefused, match="changed meanwhile"):
                operations.request_edit(**args)
    assert (sale.row.max_open, sale.state().config.max_open) == (1, 1)


def test_an_older_edit_that_arrives_late_is_refused_at_the_gate(new_sale, crash_at) -> None:
    sale = new_sale()
    args = {"activity_id": sale.activity_id, "reason": "because"}
    crash_at("operation.after_row")
    with pytest.raises(Crash):
        operations.request_edit(**args, wish=EditWish(max_open=1), operation_id="op_old")
    operations.request_edit(**args, wish=EditWish(max_pending=2), operation_id="op_new")
    operations.drive()
    assert (sale.operation("op_old").status, sale.operation("op_new").status) == (
        "REFUSED",
        "DONE",
    )
    config = sale.state().config
    assert (config.max_open, config.max_pending) == (1, 2)  # the newer one carries both


@pytest.mark.parametrize(
    "wrong",
    [
        {"ends_at": timezone.now() - timedelta(days=9)},
        {"validity_s": 0},
        {"max_open": 0},
        {"limit_per_user": {10**9: 1}},
    ],
)
def test_an_ill_edit_changes_nothing(new_sale, wrong) -> None:
    sale = new_sale()
    version = sale.row.version
    with pytest.raises(OperationRefused):
        operations.request_edit(
            activity_id=sale.activity_id, wish=EditWish(**wrong), reason="because"
        )
    assert (sale.row.version, sale.row.max_open) == (version, 20_000)


# --- a lost gate, a rebuild


def test_a_lost_gate_is_told_and_not_opened(new_sale, caplog) -> None:
    sale = new_sale()
    operations.request_pause(activity_id=sale.activity_id, reason="wait")
    sale.client.flushdb()

    assert report_gate(activity_record(sale.activity_id)).condition == "GATE_LOST"
    assert buy(sale, "ann").code.name == "GATE_LOST"
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

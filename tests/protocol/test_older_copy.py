"""The moving mark: a Redis or a PostgreSQL that came back as an older copy is noticed at once."""

import pytest

from inventory import keys, operations
from inventory.contracts import ReserveCode
from inventory.errors import OperationRefused
from inventory.gate import gate
from messaging.disposition import DONE
from orders.rebuild import loss
from orders.scan import mark as mark_module
from orders.scan.mark import MarkJob
from tests.fixtures.rebuild import (
    Crashed,
    activity,
    assert_at_rest,
    code,
    crash_at,
    gate_status,
    rebuild,
    sweep_all,
)
from tests.fixtures.sales import at_once, open_sale, run_projection
from tests.fixtures.sql import execute, one, rows

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_wait")]


@pytest.fixture
def _django_db_helper(stores):
    """Real commits."""


def tick(times=1):
    """Let so many seconds pass for the mark; returns how many losses were noted."""
    return sum(MarkJob().run_once() for _ in range(times))


def mark(store, sale):
    return int(store.client.get(keys.mark(sale.activity_id)))


def number():
    return one("SELECT number FROM inventory_gatemark")


def items():
    return rows(
        "SELECT reason, status FROM messaging_quarantine WHERE consumer_group = 'GATE' ORDER BY id"
    )


def test_an_older_copy_in_mid_sale_sells_nothing_twice(store):
    """Case 7: restored in mid-sale. The database's guard holds, the gate closes, it is reported."""
    sale = open_sale(units=3)
    tick()
    early = sale.reserve("ann")
    store.copy()
    late = [sale.reserve(user) for user in ("bob", "cid")]
    sale.deliver(early, *late)
    run_projection()
    assert (sale.gate_stock(), sale.available()) == (0, 0)
    tick(3)

    store.come_back()  # the copy knows of ann only, and promises two units more
    greedy = [sale.reserve(user) for user in ("dan", "eva")]
    decisions = [decision for buyer in greedy for decision in sale.deliver(buyer)]

    assert [decision.reason for decision in decisions] == ["NO_FINAL_STOCK"] * 2
    assert (sale.orders(), sale.available()) == (3, 0)
    # Within a second the mark shows it: noted, closed, an item for people.
    assert tick() == 1
    assert (gate_status(sale), code(sale, "fay")) == ("CLOSED", ReserveCode.CLOSED)
    assert activity(sale) == ("OPEN", 1, True, True)
    assert items() == [(loss.OLDER_COPY, "OPEN")]
    with pytest.raises(OperationRefused):
        operations.request_resume(activity_id=sale.activity_id, reason="impatient")

    sweep_all(sale)
    done = rebuild(sale)

    assert (done.status, done.run.loss_noted) == ("OPEN", True)
    assert (sale.gate_stock(), set(sale.holders())) == (0, {"ann", "bob", "cid"})
    assert items() == [(loss.OLDER_COPY, "RESOLVED")]
    assert_at_rest(sale)
    assert tick(3) == 0
    assert code(sale, "fay") is ReserveCode.SOLD_OUT


def test_the_mark_moves_by_one_each_second(store):
    sale = open_sale()

    assert tick(3) == 0

    assert (mark(store, sale), number()) == (3, 4)


def test_a_copy_of_one_step_before_is_a_loss_already(store):
    sale = open_sale()
    tick()
    store.copy()
    assert tick() == 0
    store.come_back()  # two behind the number that comes next

    assert tick() == 1
    assert items() == [(loss.OLDER_COPY, "OPEN")]
    assert gate_status(sale) == "CLOSED"


def test_a_step_that_postgres_was_not_told_of_is_no_loss(store, monkeypatch):
    sale = open_sale()
    tick()
    crash_at(monkeypatch, "mark.after_gate")
    with pytest.raises(Crashed):
        tick()
    assert (mark(store, sale), number()) == (2, 2)

    assert tick(2) == 0

    assert (mark(store, sale), number()) == (3, 4)


def test_a_scanner_that_wakes_up_late_judges_nothing(store, monkeypatch):
    open_sale()
    tick()
    real, stalled = gate().run, []

    def run(call):
        answer = real(call)
        if call.script == "move_mark" and not stalled:
            stalled.append(call)
            tick(5)  # others went on
            return 0  # and what this one saw is long ago
        return answer

    monkeypatch.setattr(gate(), "run", run)

    assert tick() == 0
    assert items() == []


def test_many_scanners_at_once_raise_no_alarm(store):
    sale = open_sale()

    assert at_once([lambda: tick(15)] * 4) == [0, 0, 0, 0]

    assert mark(store, sale) in {number() - 1, number()}
    assert items() == []


def test_keys_that_are_gone_are_a_loss_and_the_gate_stays_lost(store):
    sale = open_sale(skus=2)
    tick()
    store.lose()

    assert tick() == 1

    assert activity(sale) == ("OPEN", 1, True, True)
    assert items() == [(loss.LOST, "OPEN")]
    assert code(sale, "ann") is ReserveCode.GATE_LOST
    assert tick(3) == 0  # told once, and nothing is rebuilt by itself
    assert activity(sale) == ("OPEN", 1, True, True)


def test_a_mark_that_is_gone_alone_is_a_loss(store):
    sale = open_sale()
    tick()
    store.client.delete(keys.mark(sale.activity_id))

    assert tick() == 1
    assert items() == [(loss.MARK_GONE, "OPEN")]
    assert gate_status(sale) == "CLOSED"


def test_an_older_postgres_closes_the_sale_until_an_operator_opens_it(store):
    sale = open_sale()
    tick(5)
    rebuild(sale)
    execute("UPDATE inventory_gatemark SET number = 2")  # PostgreSQL comes back from a backup
    execute("UPDATE inventory_activity SET rebuild_run = 0")
    execute("DELETE FROM inventory_rebuildrun")

    assert tick() == 1

    status, run, unfinished, noted = activity(sale)
    assert (status, unfinished, noted) == ("CLOSED", True, True)
    assert run == 2  # above the run that the gate has seen
    assert (gate_status(sale), items()) == ("CLOSED", [(loss.POSTGRES_OLDER, "OPEN")])
    assert rebuild(sale).status == "CLOSED"
    assert tick(3) == 0
    operations.request_open(activity_id=sale.activity_id, reason="orders were restored")
    assert gate_status(sale) == "OPEN"


def postgres_comes_back(sale, *, noted=False):
    """PostgreSQL comes back as it was after its first rebuild began, or before that."""
    execute("DELETE FROM inventory_rebuildrun")
    execute("DELETE FROM inventory_gateoperation")
    execute("UPDATE inventory_gatemark SET number = 2")
    execute("UPDATE inventory_sku SET epoch = 1")
    execute("UPDATE inventory_stock SET available = initial")
    execute("UPDATE inventory_activity SET rebuild_run = 0, version = 1")
    if noted:
        execute(
            "UPDATE inventory_activity SET rebuild_run = 1, rebuild_unfinished = true,"
            " loss_noted_at = now()"
        )
        execute(
            "INSERT INTO inventory_rebuildrun (activity_id, number, loss_noted, forced, reason,"
            " status, began_at, found) VALUES (%s, 1, true, false, 'lost', 'RUNNING', now(), '{}')",
            sale.activity_id,
        )


def sold_and_rebuilt():
    """A sale that Redis lost and a rebuild brought back, and that was paused and resumed since."""
    sale = open_sale(units=3)
    tick(5)
    store_lost = rebuild(sale, note_loss=True)
    assert store_lost.run.number == 1
    rebuild(sale)
    operations.request_pause(activity_id=sale.activity_id, reason="a pause")
    operations.request_resume(activity_id=sale.activity_id, reason="and on")
    assert gate_status(sale) == "OPEN"
    return sale


@pytest.mark.parametrize("noted", [False, True])
def test_a_postgres_from_before_a_rebuild_is_no_lost_gate(store, noted):
    """The gate's epoch and runs are above PostgreSQL's, which knows no sale."""
    sale = sold_and_rebuilt()
    postgres_comes_back(sale, noted=noted)

    assert tick() == 1

    status, run, unfinished, is_noted = activity(sale)
    assert (status, run, unfinished, is_noted) == ("CLOSED", 3, True, True)
    assert gate_status(sale) == "CLOSED"
    assert items() == ([] if noted else [(loss.POSTGRES_OLDER, "OPEN")])
    stops = "SELECT count(*) FROM inventory_gateoperation WHERE kind = 'STOP'"
    assert (tick(3), one(stops)) == (0, 1)
    assert rebuild(sale).status == "CLOSED"  # and sells nothing until a person says so
    assert tick(3) == 0
    operations.request_open(activity_id=sale.activity_id, reason="orders were restored")
    assert gate_status(sale) == "OPEN"
    assert tick(3) == 0


def test_who_dies_while_noting_an_older_postgres_leaves_a_closed_gate(store, monkeypatch):
    sale = sold_and_rebuilt()
    postgres_comes_back(sale)
    crash_at(monkeypatch, "rebuild.after_note")
    with pytest.raises(Crashed):
        tick()
    assert (gate_status(sale), activity(sale)[0]) == ("CLOSED", "CLOSED")

    assert tick(3) == 0

    assert gate_status(sale) == "CLOSED"
    assert activity(sale) == ("CLOSED", 3, True, True)


def test_a_rebuild_by_hand_after_an_older_postgres_opens_nothing(store):
    sale = sold_and_rebuilt()
    postgres_comes_back(sale)

    assert rebuild(sale).status == "CLOSED"

    assert activity(sale) == ("CLOSED", 4, False, False)
    assert gate_status(sale) == "CLOSED"


def test_a_copy_that_comes_back_while_the_loss_is_noted_is_closed_again(store):
    sale = open_sale()
    tick()
    store.copy()
    tick(3)
    store.come_back()
    assert tick() == 1
    store.come_back()  # and once more, OPEN as it was
    assert gate_status(sale) == "OPEN"

    assert tick() == 0

    assert gate_status(sale) == "CLOSED"
    assert activity(sale) == ("OPEN", 1, True, True)


def test_the_gate_is_closed_by_the_next_round_when_the_first_died_before_it(store, monkeypatch):
    sale = open_sale()
    tick()
    store.copy()
    tick(3)
    store.come_back()
    crash_at(monkeypatch, "rebuild.after_note")
    with pytest.raises(Crashed):
        tick()
    assert (gate_status(sale), activity(sale)[3]) == ("OPEN", True)

    assert tick() == 0

    assert gate_status(sale) == "CLOSED"


def test_a_rebuild_that_finishes_between_two_looks_is_no_loss(store, monkeypatch):
    sale = open_sale()
    tick()
    real, first = mark_module.activity_record, []

    def activity_record(activity_id):
        record = real(activity_id)
        if not first:
            first.append(record)
            rebuild(sale)  # raises the epoch
        return record

    monkeypatch.setattr(mark_module, "activity_record", activity_record)

    assert tick() == 0
    assert gate_status(sale) == "OPEN"


def test_after_a_rebuild_the_copys_buyers_are_answered_truthfully(store):
    sale = open_sale(units=2)
    tick()
    store.copy()
    reservation = sale.reserve("ann")
    tick(3)
    store.come_back()
    assert tick() == 1
    assert sale.deliver(reservation) == [DONE]  # its message was stored: the buyer keeps his order

    rebuild(sale)

    assert (sale.gate_stock(), sale.holders()) == (1, {"ann": reservation.reservation_id})
    assert code(sale, "ann") is ReserveCode.ALREADY_RESERVED
    assert_at_rest(sale)

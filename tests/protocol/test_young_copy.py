"""An older copy of Redis, younger than a step of the mark: its file has other witnesses.

Rules `whole-copy`, `asked-orders` and `asked-operations` of docs/protocol.md. The mark's steps are
as long as a round of its job, and a busy machine makes rounds long.
"""

import pytest

from inventory import keys, operations
from inventory.contracts import ReserveCode
from inventory.gate import ONE_SERVER, gate
from orders.cancel_order import cancel_by_user
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
    promised_too_much,
    rebuild,
    sweep_all,
)
from tests.fixtures.sales import open_sale, run_projection
from tests.fixtures.sql import rows

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_wait")]


@pytest.fixture
def _django_db_helper(stores):
    """Real commits."""


@pytest.fixture
def restart(monkeypatch):
    """Let the Redis server have begun now; long ago as long as nobody calls it."""
    real, began = gate().server_times, []

    def server_times(server):
        _, now_ms = real(server)
        return (began[-1] if began else now_ms - 10_000_000), now_ms

    monkeypatch.setattr(gate(), "server_times", server_times)
    return lambda: began.append(real(ONE_SERVER)[1])


def tick():
    return MarkJob().run_once()


def two_sales_and_a_copy(store):
    """Return two sales on a Redis that came back a step old for one of them, half a step for one.

    The second sale's round was late: nothing of its own tells the copy from a crash between stores.
    """
    early, newest = open_sale(units=3), open_sale(units=3)
    tick()
    store.copy()
    assert mark_module._look(early.activity_id, {}) == 0
    sold = [newest.reserve(user) for user in ("ann", "bob")]
    store.come_back()
    return early, newest, sold


def test_what_one_sale_shows_closes_every_sale_on_that_redis(store, restart):
    early, newest, sold = two_sales_and_a_copy(store)

    assert tick() == 2

    assert [gate_status(sale) for sale in (early, newest)] == ["CLOSED", "CLOSED"]
    assert activity(newest) == ("OPEN", 1, True, True)
    assert code(newest, "eva") is ReserveCode.CLOSED
    newest.deliver(*sold)  # two buyers of whom the copy knows nothing
    run_projection()
    for sale in (early, newest):
        sweep_all(sale)
        assert rebuild(sale).status == "OPEN"
        assert_at_rest(sale)
    assert (newest.gate_stock(), set(newest.holders())) == (1, {"ann", "bob"})
    assert rows("SELECT DISTINCT reason, status FROM messaging_quarantine") == [
        (loss.OLDER_COPY, "RESOLVED")
    ]
    assert tick() == 0


def test_without_whole_copy_the_newest_sale_promises_units_twice(store, restart, monkeypatch):
    real = loss.note_older_copy

    def alone(**named):
        return real(**{**named, "others": []})

    monkeypatch.setattr(loss, "note_older_copy", alone)
    early, newest, sold = two_sales_and_a_copy(store)

    assert tick() == 1
    newest.deliver(*sold)
    run_projection()

    assert [gate_status(sale) for sale in (early, newest)] == ["CLOSED", "OPEN"]
    assert promised_too_much(newest) == 2


def test_a_crash_after_the_notes_leaves_no_sale_open(store, restart, monkeypatch):
    early, newest, _ = two_sales_and_a_copy(store)
    with monkeypatch.context() as patch:
        crash_at(patch, "rebuild.after_note")
        with pytest.raises(Crashed):
            tick()
    assert [gate_status(sale) for sale in (early, newest)] == ["OPEN", "OPEN"]
    assert [activity(sale)[3] for sale in (early, newest)] == [True, True]

    assert tick() == 0

    assert [gate_status(sale) for sale in (early, newest)] == ["CLOSED", "CLOSED"]


def test_a_mark_that_is_gone_tells_nothing_about_other_sales(store, restart):
    one_sale, other = open_sale(), open_sale()
    tick()
    store.client.delete(keys.mark(one_sale.activity_id))

    assert tick() == 1
    assert gate_status(other) == "OPEN"


@pytest.mark.parametrize("when", ["ordered before the copy returned", "its message came later"])
def test_an_order_that_a_restarted_redis_does_not_know_is_an_older_copy(store, restart, when):
    sale = open_sale(units=3)
    tick()
    sale.deliver(sale.reserve("ann"))
    store.copy()
    forgotten = sale.reserve("bob")
    if when == "its message came later":
        store.come_back()
        restart()
        assert tick() == 0
        sale.deliver(forgotten)
    else:
        sale.deliver(forgotten)
        store.come_back()
        restart()
    assert promised_too_much(sale) == 1

    assert tick() == 1

    assert gate_status(sale) == "CLOSED"
    (reason,) = rows("SELECT reason FROM inventory_rebuildrun")[0]
    assert reason.startswith("REDIS_OLDER_COPY: ")
    assert forgotten.reservation_id in reason
    sweep_all(sale)
    run_projection()
    rebuild(sale)
    assert_at_rest(sale)
    assert tick() == 0  # the rebuild forgot the hashes on purpose


def test_a_server_that_did_not_restart_is_not_asked(store, restart):
    sale = open_sale(units=3)
    tick()
    store.copy()
    sale.deliver(sale.reserve("bob"))
    store.come_back()

    assert tick() == 0  # the reconciler finds it


def test_a_restart_that_lost_nothing_is_no_loss(store, restart):
    """Its orders: live, cancelled and not yet released, made later of what was reserved before."""
    sale = open_sale(units=5)
    tick()
    reservations = [sale.reserve(user) for user in ("ann", "bob", "cid")]
    sale.deliver(*reservations)
    cancel_by_user(order_id=reservations[0].order_id, user_id="ann")
    waiting = sale.reserve("dan")
    restart()

    assert [tick(), tick()] == [0, 0]

    sale.deliver(waiting)
    assert tick() == 0
    assert gate_status(sale) == "OPEN"


def test_an_order_whose_hash_is_there_is_the_reconcilers_business(store, restart):
    """Its release was no definite failure after all: `order_without_holder`, no copy."""
    sale = open_sale(units=3)
    tick()
    sale.deliver(sale.reserve("ann"))
    store.client.hdel(keys.buyers(sale.activity_id, sale.sku_id), "ann")
    restart()

    assert tick() == 0


def test_what_a_forced_rebuild_gave_up_is_not_noted_once_more(store, restart):
    sale = open_sale(units=3)
    tick()
    store.copy()
    assert tick() == 0
    forgotten = sale.reserve("ann")
    store.come_back()
    restart()
    assert tick() == 1
    rebuild(sale)

    sale.deliver(forgotten)  # `--force`: nobody waited for it

    assert promised_too_much(sale) == 1
    assert tick() == 0


CHANGES = {
    "stop": lambda sale: operations.request_stop(activity_id=sale.activity_id, reason="wrong"),
    "pause": lambda sale: operations.request_pause(activity_id=sale.activity_id, reason="wrong"),
    "edit": lambda sale: operations.request_edit(
        activity_id=sale.activity_id, wish=operations.EditWish(max_open=7), reason="less"
    ),
    "cut": lambda sale: operations.request_cut(
        activity_id=sale.activity_id, sku_id=sale.sku_id, units=2, reason="broken"
    ),
    "top-up": lambda sale: operations.request_top_up(
        activity_id=sale.activity_id, sku_id=sale.sku_id, units=2, reason="found"
    ),
}


def operated_sale():
    """Return an open sale whose last changes of status were operators': their versions count."""
    sale = open_sale(units=5)
    CHANGES["pause"](sale)
    operations.request_resume(activity_id=sale.activity_id, reason="go on")
    tick()
    return sale


@pytest.mark.parametrize("how", ["restarted", "promoted"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_redis_does_not_know_is_an_older_copy(store, restart, change, how):
    sale = operated_sale()
    store.copy()
    CHANGES[change](sale)
    store.come_back()
    if how == "restarted":
        restart()
    assert gate_status(sale) == "OPEN"

    assert tick() == 1

    assert gate_status(sale) == "CLOSED"
    assert code(sale, "eva") is ReserveCode.CLOSED
    (reason,) = rows("SELECT reason FROM inventory_rebuildrun")[0]
    assert "forgotten operation op_" in reason
    sweep_all(sale)
    rebuild(sale)
    assert_at_rest(sale)
    assert tick() == 0  # the rebuild wrote the gate anew


def test_without_asked_operations_a_stopped_sale_sells_on(store, restart, monkeypatch):
    monkeypatch.setattr(mark_module, "forgotten_operation", lambda **_: None)
    sale = operated_sale()
    store.copy()
    CHANGES["stop"](sale)
    store.come_back()
    restart()

    assert tick() == 0
    assert activity(sale)[0] == "CLOSED"
    assert code(sale, "eva") is ReserveCode.RESERVED


@pytest.mark.parametrize("how", ["restarted", "running"])
def test_a_redis_that_kept_every_change_is_no_loss(store, restart, how):
    sale = operated_sale()
    for change in ("top-up", "cut", "edit", "pause"):
        CHANGES[change](sale)
    operations.request_resume(activity_id=sale.activity_id, reason="and on")
    if how == "restarted":
        restart()

    assert [tick(), tick()] == [0, 0]
    assert gate_status(sale) == "OPEN"


def test_changes_from_before_a_rebuild_are_not_asked_for(store, restart):
    sale = operated_sale()
    for change in ("top-up", "cut", "edit"):
        CHANGES[change](sale)
    store.lose()
    assert tick() == 1
    rebuild(sale)
    restart()

    assert tick() == 0
    CHANGES["stop"](sale)
    assert tick() == 0

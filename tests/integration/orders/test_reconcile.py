"""Each class of difference: seeded, found, repaired or ticketed; a second run changes nothing."""

import pytest

from inventory import keys, verbs
from inventory.gate import gate
from messaging import inbox
from messaging.inbox import InboxEntry
from messaging.topology import CG_ORDER_CREATE
from orders import metrics
from orders.cancel_order import cancel_unpaid
from orders.reconcile import kinds
from orders.reconcile import run as run_module
from orders.reconcile.difference import Action
from orders.reconcile.run import reconcile
from tests.fixtures.rebuild import assert_at_rest, sweep_all
from tests.fixtures.reconcile import cancel, found, items, ordered, sent_after_all
from tests.fixtures.sales import make_overdue, open_sale, run_projection, run_releases, run_timeouts
from tests.fixtures.sql import execute, one

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("nothing_is_too_young")]


@pytest.fixture
def _django_db_helper(stores):
    """Real commits."""


@pytest.fixture
def sale():
    return open_sale(units=5)


# -- what is provable is repaired -----------------------------------------------------------------


def order_without_holder(sale, client):
    return sent_after_all(sale).reservation_id


def holder_of_ended(sale, client):
    reservation = ordered(sale)
    cancel(reservation)
    client.hset(keys.buyers(sale.activity_id, sale.sku_id), "ann", reservation.reservation_id)
    client.decr(keys.stock(sale.activity_id, sale.sku_id))
    return reservation.reservation_id


def ended_without_release(sale, client):
    reservation = ordered(sale)
    make_overdue(reservation)
    cancel_unpaid([reservation.order_id])
    execute(
        "UPDATE orders_reservation SET release_state = 'NONE', release_due_at = NULL"
        " WHERE reservation_id = %s",
        reservation.reservation_id,
    )
    execute("DELETE FROM messaging_outbox WHERE tag = 'RELEASE_RESERVATION'")
    return reservation.reservation_id


def order_without_event(sale, client):
    reservation = ordered(sale)
    execute("DELETE FROM messaging_outbox WHERE tag = 'ORDER_CREATED'")
    return reservation.order_id


def order_without_trigger(sale, client):
    reservation = ordered(sale)
    execute("DELETE FROM messaging_outbox WHERE tag = 'CANCEL_IF_UNPAID'")
    return reservation.order_id


def ticket_with_outcome(sale, client):
    reservation = ordered(sale)
    sale.hold(reservation)
    return reservation.message_id


REPAIRED = [
    order_without_holder,
    holder_of_ended,
    ended_without_release,
    order_without_event,
    order_without_trigger,
    ticket_with_outcome,
]


@pytest.mark.parametrize("seed", REPAIRED, ids=lambda seed: seed.__name__)
def test_a_provable_difference_is_found_repaired_and_audited(sale, redis_client, seed):
    ordered(sale, "bystander")
    subject = seed(sale, redis_client)
    kind = seed.__name__

    looked = reconcile()
    assert (kind, subject, "REPORTED") in found(looked)
    assert (looked.failed, looked.changed) == ((), 0)

    repaired = reconcile(repair=True, started_by="test")

    assert (kind, subject, "REPAIRED") in found(repaired)
    assert repaired.count(Action.FAILED) == 0
    assert one(
        "SELECT count(*) FROM orders_reconcile_finding f JOIN orders_reconcile_run r"
        " ON r.id = f.run_id WHERE r.started_by = 'test' AND r.repaired >= 1"
        " AND f.kind = %s AND f.subject = %s AND f.action = 'REPAIRED'",
        kind,
        subject,
    )
    second = reconcile(repair=True)
    assert (second.changed, kind in {line.kind for line in second.lines}) == (0, False)
    run_releases()
    run_projection()
    run_timeouts()
    assert_at_rest(sale)
    assert items() == []


def test_the_units_of_an_order_are_taken_from_the_gate_and_come_back_once(sale, redis_client):
    reservation = sent_after_all(sale)
    assert (sale.gate_stock(), sale.available()) == (5, 4)  # one unit too many is promised

    reconcile(repair=True)

    assert (sale.gate_stock(), sale.holders()) == (4, {"ann": reservation.reservation_id})
    cancel(reservation)
    assert (sale.gate_stock(), sale.available(), sale.holders()) == (5, 5, {})


def test_an_order_that_ends_before_it_is_repaired_takes_nothing(sale, monkeypatch):
    reservation = sent_after_all(sale)
    real = run_module._act

    def act(difference, finding_id):
        cancel(reservation)  # the competitor, between the look and the repair
        return real(difference, finding_id)

    monkeypatch.setattr(run_module, "_act", act)

    report = reconcile(repair=True)

    assert [line.action for line in report.lines] == ["GONE"]
    assert (sale.gate_stock(), sale.available(), sale.holders()) == (5, 5, {})


# -- what is not provable is a ticket -------------------------------------------------------------


def taken_by_another(sale, client):
    reservation = sent_after_all(sale)
    client.hset(keys.buyers(sale.activity_id, sale.sku_id), "ann", "rsv_01KZ0000000000000000000000")
    return "order_without_holder", reservation.reservation_id


def short_of_units(sale, client):
    reservation = sent_after_all(sale)
    client.set(keys.stock(sale.activity_id, sale.sku_id), 0)
    return "order_without_holder", reservation.reservation_id


def confirmed_without_order(sale, client):
    reservation = sale.reserve("ann")
    gate().run(
        verbs.confirm(
            activity_id=sale.activity_id, items=[(sale.sku_id, reservation.reservation_id)]
        )
    )
    return "confirmed_without_order", reservation.reservation_id


def hash_gone(sale, client):
    reservation = sale.reserve("ann")
    client.delete(keys.reservation(sale.activity_id, reservation.reservation_id))
    sweep_all(sale)
    assert sale.open_ids() == set()
    return "holder_without_order", reservation.reservation_id


def gate_promises_more(sale, client):
    client.incr(keys.stock(sale.activity_id, sale.sku_id))
    return "gate_stock", f"SKU {sale.sku_id}"


def release_stuck(sale, client):
    reservation = ordered(sale)
    make_overdue(reservation)
    cancel_unpaid([reservation.order_id])
    execute(
        "UPDATE orders_reservation SET release_due_at = now() - interval '1 hour'"
        " WHERE release_state = 'DUE'"
    )
    return "release_stuck", reservation.reservation_id


def overdue_order(sale, client):
    reservation = ordered(sale)
    execute("UPDATE orders_order SET expires_at = now() - interval '1 hour'")
    return "overdue_order", reservation.order_id


def stock_changed_by_hand(sale, client):
    execute("UPDATE inventory_stock SET available = available + 1")
    return "stock_against_ledger", f"SKU {sale.sku_id}"


def inbox_without_order(sale, client):
    entry = InboxEntry(
        message_id="evt_01KZ0000000000000000000000", outcome="CREATED", order_id="ord_none"
    )
    inbox.claim(group=CG_ORDER_CREATE, entries=[entry])
    return "inbox_created_without_order", entry.message_id


def paid_by_nothing(sale, client):
    reservation = ordered(sale)
    execute("UPDATE orders_order SET status = 'PAID', paid_at = now(), payment_id = 'pay_none'")
    return "money", f"order {reservation.order_id}"


def payment_unknown(sale, client):
    reservation = ordered(sale)
    execute(
        "INSERT INTO orders_payment_attempt (attempt_id, order_id, attempt_no, provider,"
        " amount_cents, currency, status, created_at, submitted_at, submit_count, next_try_at,"
        " tries, error_class) VALUES ('pay_1', %s, 1, 'sandbox', 1999, 'EUR', 'SUBMIT_UNKNOWN',"
        " now() - interval '2 hours', now(), 1, now(), 3, '')",
        reservation.order_id,
    )
    return "payment_unknown", "pay_1"


TICKETS = [
    taken_by_another,
    short_of_units,
    confirmed_without_order,
    hash_gone,
    gate_promises_more,
    release_stuck,
    overdue_order,
    stock_changed_by_hand,
    inbox_without_order,
    paid_by_nothing,
    payment_unknown,
]


@pytest.mark.parametrize("seed", TICKETS, ids=lambda seed: seed.__name__)
def test_a_difference_that_nothing_proves_is_a_ticket_once(sale, redis_client, seed):
    kind, subject = seed(sale, redis_client)
    before = (sale.gate_stock(), sale.available(), sale.holders())

    first = reconcile(repair=True)

    assert (kind, subject, "TICKET") in found(first)
    assert (first.failed, first.count(Action.FAILED, Action.REPAIRED)) == ((), 0)
    assert (kind.upper(), "OPEN", 1) in items()
    tickets = len(items())
    second = reconcile(repair=True)
    assert (kind, subject, "KNOWN") in found(second)
    assert (second.changed, len(items())) == (0, tickets)
    assert (sale.gate_stock(), sale.available(), sale.holders()) == before


def test_a_ticket_is_closed_when_the_difference_can_be_repaired_after_all(sale, redis_client):
    short_of_units(sale, redis_client)
    reconcile(repair=True)
    redis_client.set(keys.stock(sale.activity_id, sale.sku_id), 5)

    report = reconcile(repair=True)

    assert [line.action for line in report.lines] == ["REPAIRED"]
    assert ("ORDER_WITHOUT_HOLDER", "RESOLVED", 1) in items()
    assert sale.gate_stock() == 4


def _end_unknown_payment():
    execute(
        "UPDATE orders_payment_attempt SET status = 'FAILED', settled_at = now(),"
        " next_try_at = NULL, error_class = 'DECLINED'"
    )


def test_an_item_is_closed_when_a_full_look_does_not_find_its_difference_any_more(
    sale, redis_client
):
    payment_unknown(sale, redis_client)
    stock_changed_by_hand(sale, redis_client)
    reconcile(repair=True)
    _end_unknown_payment()

    reconcile()
    reconcile(activity_id=sale.activity_id, repair=True)
    assert {status for _, status, _ in items()} == {"OPEN"}  # neither looked at all, to repair
    reconcile(repair=True)

    assert sorted(items()) == [
        ("GATE_STOCK", "OPEN", 1),
        ("PAYMENT_UNKNOWN", "RESOLVED", 1),
        ("STOCK_AGAINST_LEDGER", "OPEN", 1),
    ]
    assert one("SELECT resolution FROM messaging_quarantine WHERE status = 'RESOLVED'") == "GONE"


def test_an_item_stays_open_when_its_look_fails_or_it_was_opened_meanwhile(
    sale, redis_client, monkeypatch
):
    payment_unknown(sale, redis_client)
    reconcile(repair=True)
    _end_unknown_payment()

    def broken(scope):
        raise RuntimeError("away")

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "FINDERS", {**kinds.FINDERS, "money": broken})
        reconcile(repair=True)
    assert items() == [("PAYMENT_UNKNOWN", "OPEN", 1)]

    execute("UPDATE messaging_quarantine SET last_at = now() + interval '1 minute'")
    reconcile(repair=True)
    assert items() == [("PAYMENT_UNKNOWN", "OPEN", 1)]


def test_an_item_of_a_run_over_one_sale_stays_while_a_full_look_finds_it(sale, redis_client):
    paid_by_nothing(sale, redis_client)
    reconcile(activity_id=sale.activity_id, repair=True)
    reconcile(repair=True)
    assert {status for _, status, _ in items()} == {"OPEN"}


# -- what is on its way is no difference ----------------------------------------------------------


def test_a_sale_in_full_motion_shows_nothing(sale):
    ordered(sale, "ann")
    sale.reserve("bob")
    held = sale.reserve("cid")
    sale.hold(held)
    due = ordered(sale, "dan")
    make_overdue(due)
    cancel_unpaid([due.order_id])  # its release is on its way

    report = reconcile(repair=True)

    assert found(report) == []


def test_a_gate_that_is_lost_or_rebuilding_is_the_rebuilds_business(sale, redis_client):
    sent_after_all(sale)
    redis_client.hset(keys.gate(sale.activity_id, sale.sku_id), "status", "REBUILDING")
    assert found(reconcile(repair=True)) == []
    redis_client.flushdb()
    assert found(reconcile(repair=True)) == []


def test_a_look_that_fails_hides_nothing_else(sale, monkeypatch):
    inbox_without_order(sale, None)

    def broken(scope):
        raise RuntimeError("away")

    monkeypatch.setattr("orders.reconcile.run.FINDERS", {**kinds.FINDERS, "gate": broken})
    counter = metrics.RECONCILE_LOOK_FAILED.labels(finder="gate")
    before = counter._value.get()

    report = reconcile(repair=True)

    assert counter._value.get() == before + 1

    assert report.failed == ("gate: RuntimeError",)
    assert [line.kind for line in report.lines] == ["inbox_created_without_order"]
    assert one("SELECT failed->>0 FROM orders_reconcile_run") == "gate: RuntimeError"


def test_a_repair_that_fails_writes_nothing_and_is_tried_again(sale, monkeypatch):
    sent_after_all(sale)
    real = gate().run

    def run(call):
        if call.script == "adopt":
            raise RuntimeError("away")
        return real(call)

    with monkeypatch.context() as patch:
        patch.setattr(gate(), "run", run)
        assert [line.action for line in reconcile(repair=True).lines] == ["FAILED"]
    assert items() == []

    assert [line.action for line in reconcile(repair=True).lines] == ["REPAIRED"]

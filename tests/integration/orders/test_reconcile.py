"""Each class of difference: seeded, found, repaired or ticketed; a second run changes nothing."""

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from inventory import keys, verbs
from inventory.contracts import GiveBackCode, GiveBackItem
from inventory.gate import gate
from messaging import inbox, outbox
from messaging.inbox import InboxEntry
from messaging.selectors import GroupLag
from messaging.topology import CG_ORDER_CREATE
from orders import gate_check, tasks
from orders.cancel_order import cancel_unpaid
from orders.contracts import ORDER_PAID
from orders.database import fetch
from orders.events import ORDER_COLUMNS, order_event, order_record
from orders.reconcile import kinds, message_side
from orders.reconcile import run as run_module
from orders.reconcile.difference import Action
from orders.reconcile.retention import drop_old_runs
from orders.reconcile.run import reconcile
from orders.release import release_reservations
from seckill.celery import app
from tests.fixtures.rebuild import assert_at_rest, operator, sweep_all
from tests.fixtures.sales import (
    OWNER,
    make_overdue,
    open_sale,
    run_projection,
    run_releases,
    run_timeouts,
)
from tests.fixtures.sql import execute, one, rows

pytestmark = pytest.mark.django_db


@pytest.fixture
def _django_db_helper(stores):
    """Real commits."""


@pytest.fixture(autouse=True)
def _nothing_is_too_young(monkeypatch):
    monkeypatch.setattr(gate_check, "YOUNG_MS", -60_000)


@pytest.fixture
def sale():
    return open_sale(units=5)


def ordered(sale, user="ann"):
    reservation = sale.reserve(user)
    sale.deliver(reservation)
    run_projection()
    return reservation


def cancel(reservation):
    make_overdue(reservation)
    assert cancel_unpaid([reservation.order_id]).canceled
    run_releases()


def sent_after_all(sale, user="ann"):
    """The one assumption, broken: a definite failure that the broker stored after all."""
    reservation = sale.reserve(user, sent=False)
    item = GiveBackItem(
        sku_id=reservation.sku_id,
        reservation_id=reservation.reservation_id,
        user_id=user,
        quantity=1,
        idempotency_key=reservation.reservation_id.removeprefix("rsv_"),
    )
    (code,) = gate().run(
        verbs.give_back(activity_id=sale.activity_id, items=[item], lease_owner=OWNER)
    )
    assert code is GiveBackCode.OK
    sale.deliver(reservation)
    run_projection()
    return reservation


def items():
    return rows(
        "SELECT reason, status, occurrences FROM messaging_quarantine"
        " WHERE consumer_group = 'RECONCILE' ORDER BY id"
    )


def found(report):
    return [(line.kind, line.subject, line.action) for line in report.lines]


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

    report = reconcile(repair=True)

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


# -- published, not consumed ----------------------------------------------------------------------


@pytest.fixture
def published(sale, monkeypatch):
    """An ORDER_PAID that was sent and reached no group."""
    monkeypatch.setattr(message_side, "LEAST_AGE_S", -60)
    monkeypatch.setattr(
        message_side, "group_lag", lambda group: GroupLag(members=1, lag_s=-20.0, drain_per_s=1.0)
    )
    reservation = ordered(sale)
    execute("DELETE FROM messaging_outbox")
    ((*row,),) = fetch(
        f"SELECT {ORDER_COLUMNS} FROM orders_order o WHERE o.order_id = %s",  # noqa: S608
        (reservation.order_id,),
    )
    order = order_record(tuple(row))
    message = order_event(ORDER_PAID, order, now=order.created_at)
    outbox.add([message])
    sent()
    return message.event_id


def sent():
    execute("UPDATE messaging_outbox SET state = 1, sent_at = now() WHERE state = 0")


def mine(report):
    return [(line.kind, line.action) for line in report.lines if "consumed" in line.kind]


def groups():
    return [
        group
        for group in message_side.enabled_groups()
        if group.has_inbox and ORDER_PAID in group.tags
    ]


def test_what_was_published_but_not_consumed_is_sent_once_more_then_a_ticket(published):
    first = reconcile(repair=True)

    assert sorted({action for _, action in mine(first)}) == ["GONE", "REPAIRED"]
    assert len(mine(first)) == len(groups()) >= 1
    copies = rows(
        "SELECT payload, properties::text FROM messaging_outbox WHERE event_id = %s ORDER BY id",
        published,
    )
    assert len(copies) == 2  # one more copy, the same bytes, for all groups
    assert copies[0] == copies[1]
    assert mine(reconcile(repair=True)) == []  # on its way again
    sent()
    assert mine(reconcile(repair=True)) == [("not_consumed_after_replay", "TICKET")] * len(groups())
    assert mine(reconcile(repair=True)) == [("not_consumed_after_replay", "KNOWN")] * len(groups())


def test_what_every_group_dealt_with_or_gave_up_is_not_sent_again(published):
    for number, group in enumerate(groups()):
        if number == 0:
            execute(
                "INSERT INTO messaging_quarantine (consumer_group, message_id, source, status,"
                " topic, tag, keys, properties, body, body_sha256, reason, error,"
                " delivery_attempt, occurrences, first_at, last_at, resolution)"
                " VALUES (%s, %s, 'DLQ', 'OPEN', '', '', '', '{}', '', '', 'X', '', 1, 1, now(),"
                " now(), '')",
                group.name,
                published,
            )
        else:
            entry = InboxEntry(message_id=published, outcome="APPLIED")
            inbox.claim(group=group.name, entries=[entry])

    assert mine(reconcile(repair=True)) == []


def test_rows_that_are_not_sent_are_one_ticket_a_topic(sale, monkeypatch):
    monkeypatch.setattr(message_side, "LEAST_AGE_S", -60)
    ordered(sale)

    report = reconcile(repair=True)

    stuck = [(line.subject, line.action) for line in report.lines if line.kind == "outbox_stuck"]
    assert stuck == [("ORDER_EVENT_V1", "TICKET"), ("ORDER_TIMEOUT_V1", "TICKET")]


# -- command, pages, retention --------------------------------------------------------------------


def test_the_command_says_what_it_found_and_exits_1_while_something_is_left(sale, redis_client):
    sent_after_all(sale)
    out = StringIO()
    with pytest.raises(SystemExit) as left:
        call_command("reconcile", "--json", stdout=out)
    assert left.value.code == 1
    report = json.loads(out.getvalue())
    assert (report["found"], report["changed"]) == (1, 0)

    out = StringIO()
    call_command("reconcile", "--repair", "--activity", str(sale.activity_id), stdout=out)
    assert "order_without_holder" in out.getvalue()

    out = StringIO()
    call_command("reconcile", "--repair", stdout=out)
    assert "no difference" in out.getvalue()
    with pytest.raises(CommandError, match="no activity"):
        call_command("reconcile", "--activity", "999999")


def test_operators_read_runs_and_findings_and_change_nothing(sale, client):
    sent_after_all(sale)
    reconcile()
    user = operator("orders.view_reconcilerun", "orders.view_reconcilefinding")
    user.is_staff = True
    user.save()
    client.force_login(user)

    page = client.get("/admin/orders/reconcilefinding/")

    assert page.status_code == 200
    assert b"order_without_holder" in page.content
    assert client.get("/admin/orders/reconcilerun/").status_code == 200
    assert client.get("/admin/orders/reconcilerun/add/").status_code == 403


def test_old_runs_go_quiet_ones_first(sale):
    reconcile()
    sent_after_all(sale)
    reconcile()
    assert drop_old_runs() == 0
    execute("UPDATE orders_reconcile_run SET started_at = now() - interval '8 days'")
    assert drop_old_runs() == 1
    execute("UPDATE orders_reconcile_run SET started_at = now() - interval '91 days'")
    assert drop_old_runs() == 1
    assert one("SELECT count(*) FROM orders_reconcile_finding") == 0


def test_the_schedule_repairs_and_names_tasks_that_exist(sale):
    sent_after_all(sale)

    assert tasks.reconcile_all() == 1

    assert sale.gate_stock() == 4
    assert tasks.delete_settled_gates() == 0
    app.autodiscover_tasks(force=True)
    assert {entry["task"] for entry in app.conf.beat_schedule.values()} <= set(app.tasks)


def test_every_kind_has_its_rule_and_no_release_is_forgotten(sale):
    assert all(kind.rule for kind in kinds.KINDS.values())
    reservation = ordered(sale)
    assert release_reservations([reservation.reservation_id]).unknown == {
        reservation.reservation_id
    }

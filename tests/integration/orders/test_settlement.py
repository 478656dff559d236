"""The end of a sale: what speaks against settling it, its report, its page, its gate's end."""

import csv
import io
import json
from dataclasses import replace

import pytest
from django.core.exceptions import PermissionDenied

from inventory import operations
from inventory.errors import GateUnavailable, OperationRefused
from inventory.gate import gate
from orders import release
from orders.cancel_order import cancel_by_operator, cancel_unpaid
from orders.errors import SettlementRefused
from orders.settlement import settle as settle_module
from orders.settlement.cleanup import delete_old_gates
from orders.settlement.report import as_csv, safe_cell, settlement_report
from orders.settlement.settle import blockers, settle
from tests.fixtures.paid import pay_now
from tests.fixtures.purchases import attempt
from tests.fixtures.rebuild import operator
from tests.fixtures.sales import (
    make_overdue,
    open_sale,
    run_projection,
    run_releases,
)
from tests.fixtures.sql import execute, one

pytestmark = pytest.mark.django_db


@pytest.fixture
def _django_db_helper(stores):
    """Real commits."""


@pytest.fixture
def user():
    return operator("orders.settle_sale", "orders.view_report", "orders.cancel_order")


def send_all():
    """The sender has published everything."""
    execute("UPDATE messaging_outbox SET state = 1, sent_at = now()")


def finished_sale(user):
    """Six units and two more, one cut: two sold, one withheld, one restocked."""
    sale = open_sale(units=6)
    made = sale.reserve_all(["ann", "bob", "cid", "dan"])
    sale.deliver(*made)
    run_projection()
    for reservation in made[:2]:
        # Money is another suite's subject: here only the order's state counts.
        pay_now(order_id=reservation.order_id, payment_id="pay_x")
    make_overdue(made[2])
    cancel_unpaid([made[2].order_id])
    cancel_by_operator(order_id=made[3].order_id, user=user, reason="broken", restock=False)
    operations.request_top_up(
        activity_id=sale.activity_id, sku_id=sale.sku_id, units=2, reason="more"
    )
    operations.request_cut(
        activity_id=sale.activity_id, sku_id=sale.sku_id, units=1, reason="broken"
    )
    run_releases()
    send_all()
    operations.request_close(activity_id=sale.activity_id, reason="the end")
    return sale


def test_a_sale_at_rest_is_settled_and_its_report_frozen(user):
    sale = finished_sale(user)
    assert blockers(sale.activity_id) == ()

    report = settle(activity_id=sale.activity_id, reason="all done", user=user)

    (sku,) = report.skus
    assert (sku.initial, sku.topped_up, sku.cut, sku.supply) == (6, 2, 1, 7)
    assert (sku.sold, sku.left, sku.withheld, sku.difference) == (2, 4, 1, 0)
    assert sku.canceled == {"OPERATOR": 1, "PAYMENT_TIMEOUT": 1}
    assert sku.explanations == (
        "1 of 4 units that were sold came back and were put on sale again",
        "1 units came back and were withheld from the sale",
    )
    assert report.balanced
    assert one("SELECT status FROM inventory_activity") == "SETTLED"
    assert one("SELECT report->'skus'->0->>'sold' FROM orders_settlement") == "2"
    with pytest.raises(OperationRefused):
        operations.request_open(activity_id=sale.activity_id, reason="again")
    with pytest.raises(SettlementRefused, match="SETTLED, not CLOSED"):
        settle(activity_id=sale.activity_id, reason="again", user=user)


def _open(sale):
    execute("UPDATE inventory_activity SET status = 'OPEN'")


def _due(sale):
    execute("UPDATE orders_reservation SET release_state = 'DUE' WHERE release_state = 'DONE'")


def _unpaid(sale):
    execute("UPDATE orders_order SET status = 'PAYING', paid_at = NULL WHERE status = 'PAID'")


def _unsent(sale):
    execute("UPDATE messaging_outbox SET state = 0, sent_at = NULL WHERE tag = 'ORDER_CREATED'")


def _held(sale):
    first = sale.reservations[0]
    suffix = "01KZ0000000000000000000000"
    sale.hold(replace(first, reservation_id=f"rsv_{suffix}", message_id=f"evt_{suffix}"))


def _failed_refund(sale):
    """A second capture of a paid order: its refund was refused and nobody has acted."""
    attempt(sale.reservations[0])
    execute(
        "UPDATE orders_refund SET status = 'FAILED', submitted_at = now(), settled_at = now(),"
        " next_try_at = NULL"
    )


def _rebuilding(sale):
    execute("UPDATE inventory_activity SET rebuild_unfinished = true")


@pytest.mark.parametrize(
    ("change", "saying"),
    [
        (_open, "it is OPEN, not CLOSED"),
        (_due, "2 releases are due"),
        (_unpaid, "2 orders are unpaid or being refunded"),
        (_unsent, "4 messages are not sent"),
        (_held, "1 reservations are held by a ticket"),
        (_failed_refund, "1 refunds are not settled"),
        (_rebuilding, "its gate is being rebuilt, or waits for it"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_is_on_its_way_speaks_against_it(user, change, saying):
    sale = finished_sale(user)
    change(sale)

    assert blockers(sale.activity_id) == (saying,)
    with pytest.raises(SettlementRefused):
        settle(activity_id=sale.activity_id, reason="all done", user=user)
    assert one("SELECT count(*) FROM orders_settlement") == 0


def test_a_reservation_without_an_outcome_speaks_against_it(user):
    sale = open_sale()
    sale.reserve("ann")
    operations.request_close(activity_id=sale.activity_id, reason="the end")

    assert blockers(sale.activity_id) == ("1 reservations have no outcome, 0 are not sent",)


def test_a_sale_that_was_opened_again_meanwhile_is_not_settled(user, monkeypatch):
    sale = finished_sale(user)

    def blockers_then_competitor(activity_id):
        operations.request_open(activity_id=activity_id, reason="one hour more")
        operations.request_close(activity_id=activity_id, reason="enough")
        return ()

    monkeypatch.setattr(settle_module, "blockers", blockers_then_competitor)

    with pytest.raises(SettlementRefused, match="has changed"):
        settle(activity_id=sale.activity_id, reason="all done", user=user)
    assert one("SELECT status FROM inventory_activity") == "CLOSED"


def test_units_that_are_not_accounted_for_are_explained_and_not_settled(user):
    sale = finished_sale(user)
    execute("UPDATE inventory_stock SET available = available - 1")

    (sku,) = settlement_report(sale.activity_id).skus
    assert sku.difference == 1
    assert sku.explanations[-2:] == (
        "the ledger's sum is 4, left are 3",
        "1 units are not accounted for: manage.py reconcile names the rows",
    )
    with pytest.raises(SettlementRefused, match="not accounted for"):
        settle(activity_id=sale.activity_id, reason="all done", user=user)
    assert one("SELECT status FROM inventory_activity") == "CLOSED"


def test_who_may_not_settle_does_not(user):
    sale = finished_sale(user)
    with pytest.raises(PermissionDenied):
        settle(activity_id=sale.activity_id, reason="x", user=operator(name="eve"))
    with pytest.raises(SettlementRefused, match="reason"):
        settle(activity_id=sale.activity_id, reason=" ", user=user)


# -- report ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t", "\r", "\n"])
def test_no_cell_is_a_formula(first):
    assert safe_cell(f"{first}HYPERLINK(1)") == f"'{first}HYPERLINK(1)"
    assert safe_cell("plain = text") == "plain = text"


def test_the_csv_reads_back_as_it_was(user):
    sale = finished_sale(user)
    execute("UPDATE inventory_activity SET name = '=cmd|calc'")
    execute("UPDATE inventory_sku SET name = 'one, \"two\"'")

    (line,) = csv.DictReader(io.StringIO(as_csv(settlement_report(sale.activity_id))))

    assert (line["activity"], line["sku"]) == ("'=cmd|calc", 'one, "two"')
    assert (line["sold"], line["left"], line["withheld"], line["difference"]) == tuple("2410")
    assert line["canceled"] == "OPERATOR 1; PAYMENT_TIMEOUT 1"


def test_the_page_shows_settles_and_downloads(user, client):
    sale = finished_sale(user)
    user.is_staff = True
    user.save()
    client.force_login(user)
    page = f"/admin/orders/settlement/sale/{sale.activity_id}/"
    assert b"Settle the sale" in client.get(page).content

    assert client.post(page, {"reason": "all done"}).status_code == 302

    content = client.get(page).content.decode()
    assert "SETTLED" in content
    assert "Settle the sale" not in content
    answer = client.get(f"{page}report.json")
    assert json.loads(answer.content)["balanced"] is True
    assert answer["Content-Disposition"] == (
        f'attachment; filename="settlement-{sale.activity_id}.json"'
    )
    assert client.get(f"{page}report.csv")["Content-Type"].startswith("text/csv")
    assert client.get(f"{page}report.xls").status_code == 404
    assert client.get("/admin/orders/settlement/sale/999999/").status_code == 404


def test_a_refusal_keeps_what_was_typed(user, client, monkeypatch):
    sale = finished_sale(user)
    user.is_staff = True
    user.save()
    client.force_login(user)

    def refuse(**_):
        raise SettlementRefused(("not now",))

    monkeypatch.setattr("orders.settlement.admin.settling.settle", refuse)
    answer = client.post(
        f"/admin/orders/settlement/sale/{sale.activity_id}/", {"reason": "all <done>"}
    )

    assert b"Not now" in answer.content
    assert b'value="all &lt;done&gt;"' in answer.content


def test_the_page_is_for_staff_with_the_permission_only(user, client):
    sale = finished_sale(user)
    page = f"/admin/orders/settlement/sale/{sale.activity_id}/"
    assert client.get(page).status_code == 302  # to the log-in
    eve = operator(name="eve")
    eve.is_staff = True
    eve.save()
    client.force_login(eve)
    for what in ("", "report.csv", "report.json"):
        assert client.get(page + what).status_code == 403
    assert client.post(page, {"reason": "x"}).status_code == 403
    # Who may read but not settle is refused when he posts all the same.
    ray = operator("orders.view_report", name="ray")
    ray.is_staff = True
    ray.save()
    client.force_login(ray)
    assert b"Settle the sale" not in client.get(page).content
    assert client.post(page, {"reason": "x"}).status_code == 403
    assert one("SELECT status FROM inventory_activity") == "CLOSED"


# -- the gate's end --------------------------------------------------------------------------------


def test_the_gate_is_deleted_30_days_after_and_a_late_release_needs_none(user, redis_client):
    sale = finished_sale(user)
    other = open_sale()
    settle(activity_id=sale.activity_id, reason="all done", user=user)
    assert delete_old_gates() == 0
    execute("UPDATE orders_settlement SET settled_at = now() - interval '31 days'")

    assert delete_old_gates() == 1

    prefix = f"seckill:{{{sale.activity_id}}}:"
    left = {key.removeprefix(prefix).split(":")[0] for key in redis_client.keys(f"{prefix}*")}
    assert left == {"reservation", "request"}  # they expire by themselves
    assert all(redis_client.ttl(key) > 0 for key in redis_client.keys(f"{prefix}*"))
    assert other.gate_stock() == 10
    assert delete_old_gates() == 0
    # A refund long after: its release has nowhere to go.
    execute(
        "UPDATE orders_reservation SET release_state = 'DUE', release_due_at = now()"
        " WHERE release_state = 'NONE'"
    )
    ids = [r.reservation_id for r in sale.reservations]
    assert len(release.release_reservations(ids).deferred) == 2
    delete_old_gates()
    assert one("SELECT count(*) FROM orders_reservation WHERE release_state = 'DUE'") == 0


def test_settling_waits_for_redis(user, monkeypatch):
    sale = finished_sale(user)

    def away(call):
        raise GateUnavailable("away")

    monkeypatch.setattr(gate(), "run", away)
    with pytest.raises(GateUnavailable):
        settle(activity_id=sale.activity_id, reason="all done", user=user)

"""Runs of the reconciliation: command, pages, retention, schedule."""

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from orders import tasks
from orders.equalities import Equality
from orders.reconcile import database_side, kinds, message_side
from orders.reconcile.difference import Scope
from orders.reconcile.retention import drop_old_runs
from orders.reconcile.run import reconcile
from orders.release import release_reservations
from seckill.celery import app
from tests.fixtures.rebuild import operator
from tests.fixtures.reconcile import ordered, sent_after_all
from tests.fixtures.sales import open_sale
from tests.fixtures.sql import execute, one

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("nothing_is_too_young")]


@pytest.fixture
def _django_db_helper(stores):
    """Real commits."""


@pytest.fixture
def sale():
    return open_sale(units=5)


def test_the_command_says_what_it_found_and_exits_1_while_something_is_left(
    sale, redis_client, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "80")
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


def test_looks_that_read_all_sales_have_time_and_no_nested_loops(monkeypatch):
    told = "current_setting('statement_timeout') || ' ' || current_setting('enable_nestloop')"
    equality = Equality(kind="x", rule="r", sql=f"SELECT NULL::bigint, {told}")
    stuck = f"SELECT {told}, 1, '' WHERE %s > 0"
    monkeypatch.setattr(database_side, "EQUALITIES", (equality,))
    monkeypatch.setattr(message_side, "_STUCK", stuck)
    everything = Scope(activity_id=None, sales=(), serving=())

    subjects = [
        *(one.subject for one in database_side.find(everything)),
        *(one.subject for one in message_side.find(everything)),
    ]

    assert subjects == ["10min off"] * 2

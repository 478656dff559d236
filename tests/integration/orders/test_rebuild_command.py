"""`manage.py rebuild_gate` as an operator calls it."""

from io import StringIO

import pytest
from django.core.exceptions import PermissionDenied
from django.core.management import CommandError, call_command

from inventory.errors import GateUnavailable
from inventory.gate import gate
from tests.fixtures.rebuild import activity, gate_status, operator, rebuild
from tests.fixtures.sales import open_sale
from tests.fixtures.sql import one

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_wait")]


@pytest.fixture
def _django_db_helper(stores):
    """Real commits."""


def call(*args):
    out = StringIO()
    call_command("rebuild_gate", *map(str, args), stdout=out)
    return out.getvalue()


def test_it_says_what_it_does_and_brings_a_lost_gate_back(store):
    sale = open_sale(units=1)
    held = sale.reserve("ann")
    sale.hold(held)
    store.lose()

    said = call(sale.activity_id, "--yes", "--reason", "Redis died")

    assert "its gate GATE_LOST" in said
    assert "run 1 is noted, with the loss" in said
    assert "run 1 DONE: the gate is OPEN" in said
    assert one("SELECT reason FROM inventory_rebuildrun") == "Redis died"
    assert activity(sale) == ("OPEN", 1, False, False)


def test_a_dry_run_changes_nothing(store):
    sale = open_sale()
    store.lose()

    said = call(sale.activity_id, "--dry-run")

    assert "its gate GATE_LOST" in said
    assert activity(sale) == ("OPEN", 0, False, False)
    assert store.client.dbsize() == 0


def test_it_asks_before_it_closes_a_gate(monkeypatch):
    sale = open_sale()
    monkeypatch.setattr("builtins.input", lambda prompt: "no")

    with pytest.raises(CommandError, match="nothing was done"):
        call(sale.activity_id)

    assert (gate_status(sale), activity(sale)[1]) == ("OPEN", 0)


def test_nobody_at_a_terminal_is_no_confirmation(monkeypatch):
    sale = open_sale()
    monkeypatch.setattr("sys.stdin", StringIO())

    with pytest.raises(CommandError, match="nothing was done; use --yes"):
        call(sale.activity_id)

    assert (gate_status(sale), activity(sale)[1]) == ("OPEN", 0)


def test_what_it_cannot_do_is_one_clear_line(monkeypatch):
    with pytest.raises(CommandError, match="no activity"):
        call(999_999, "--yes")
    sale = open_sale()

    def away(call):
        raise GateUnavailable("away")

    monkeypatch.setattr(gate(), "run", away)
    with pytest.raises(CommandError, match="run it again"):
        call(sale.activity_id, "--yes")
    assert activity(sale) == ("OPEN", 0, False, False)


def test_a_user_needs_the_permission():
    sale = open_sale()
    with pytest.raises(PermissionDenied):
        rebuild(sale, user=operator(name="eve"))
    assert activity(sale)[1] == 0

    rebuild(sale, user=operator("inventory.rebuild_gate"))

    assert (
        one("SELECT username FROM inventory_rebuildrun JOIN auth_user u ON u.id = requested_by_id")
        == "olga"
    )


def test_it_may_be_repeated_at_any_time():
    sale = open_sale()
    for run in (1, 2, 3):
        assert f"run {run} DONE" in call(sale.activity_id, "--yes")
    assert (gate_status(sale), sale.gate_stock()) == ("OPEN", 10)

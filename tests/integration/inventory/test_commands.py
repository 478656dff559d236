"""manage.py warm_up, emergency_stop; readiness of Redis."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from inventory import readiness
from inventory.errors import GateUnavailable
from inventory.gate import Gate
from inventory.models import GateOperation


def run(*args: object) -> str:
    out = StringIO()
    call_command(*map(str, args), stdout=out)
    return out.getvalue()


def test_warm_up_says_what_it_would_do_then_does_it_then_again(new_draft) -> None:
    sale = new_draft()
    assert f"would load SKU {sale.sku_id}: 10" in run("warm_up", sale.activity_id, "--dry-run")
    assert (sale.row.status, sale.state()) == ("DRAFT", None)
    for _ in range(2):
        assert "DONE" in run("warm_up", sale.activity_id)
    assert (sale.row.status, sale.state().stock) == ("WARM", 10)


def test_emergency_stop_asks_and_repeats(new_sale, monkeypatch) -> None:
    sale = new_sale()
    assert "would stop" in run("emergency_stop", sale.activity_id, "--dry-run")
    monkeypatch.setattr("builtins.input", lambda prompt: "no")
    with pytest.raises(CommandError, match="not confirmed"):
        run("emergency_stop", sale.activity_id)
    assert sale.row.status == "OPEN"
    for _ in range(2):
        assert "is stopped" in run(
            "emergency_stop", sale.activity_id, "--yes", "--reason", "wrong price"
        )
    assert (sale.row.status, sale.state().stopped) == ("CLOSED", True)
    assert set(GateOperation.objects.filter(kind="STOP").values_list("reason", flat=True)) == {
        "wrong price"
    }


def test_nobody_at_a_terminal_is_no_confirmation(new_sale, monkeypatch) -> None:
    sale = new_sale()
    monkeypatch.setattr("sys.stdin", StringIO())
    with pytest.raises(CommandError, match="not confirmed, nothing was done; use --yes"):
        run("emergency_stop", sale.activity_id)
    assert sale.row.status == "OPEN"


def test_an_emergency_stop_without_the_gate_says_so(new_sale, monkeypatch) -> None:
    sale = new_sale()

    def fail(self, call):
        raise GateUnavailable("down")

    monkeypatch.setattr(Gate, "run", fail)
    with pytest.raises(CommandError, match="the gate does not know yet"):
        run("emergency_stop", sale.activity_id, "--yes")
    assert sale.row.status == "CLOSED"


@pytest.mark.parametrize("command", ["warm_up", "emergency_stop"])
def test_an_unknown_sale_is_a_clear_error(db, command) -> None:
    with pytest.raises(CommandError, match="there is no activity 999"):
        run(command, 999)


def test_readiness_names_each_problem(db, redis_client, monkeypatch) -> None:
    assert readiness.problems() == []
    facts = Gate.server_facts

    def changed(self: Gate, server: str):
        config, now_ms = facts(self, server)
        return config | {"maxmemory-policy": "allkeys-lru", "appendonly": "no"}, now_ms - 1_500

    monkeypatch.setattr(Gate, "server_facts", changed)
    evicts, forgets, skewed = readiness.problems()
    assert "noeviction" in evicts
    assert "appendonly yes" in forgets
    assert "clocks" in skewed

    def down(self: Gate, server: str):
        raise GateUnavailable("no answer")

    monkeypatch.setattr(Gate, "server_facts", down)
    (unreachable,) = readiness.problems()
    assert "does not answer" in unreachable

"""The audits of demo, bench and process tests, which waited for rest: motion is a breach there."""

import json
import subprocess
from types import SimpleNamespace

import pytest

from bench import audit as bench_audit
from bench.audit import wait_for_orders
from seckill.demo import result as demo_result
from seckill.demo.sale import Numbers
from seckill.demo.story import Told
from tests.fixtures.system import Sale, System

SALE = SimpleNamespace(activity_id=7, stock=10)
GATE_GONE = "the gate of SKU 8 is not there"


def report(*motion: str, unclear: int = 0):
    money = {"currency": "EUR", "payment_unknown": unclear, "refund_unknown": 0}
    return {
        "breaches": [],
        "oversold": 0,
        "lost": 0,
        "duplicates": 0,
        "in_motion": bool(motion or unclear),
        "sales": [{"motion": list(motion)}],
        "money": [money],
    }


@pytest.fixture
def said(monkeypatch):
    """Let `check_invariants` say a report; tells how it was asked."""
    asked = []

    def say(found):
        def check(activity_id, *, environment, at_rest=False):
            asked.append(at_rest)
            return found

        for module in (demo_result, bench_audit):
            monkeypatch.setattr(module, "check_invariants", check)
            monkeypatch.setattr(module, "promised", lambda ids: (0, 0))
        return asked

    return say


def demo(*, at_rest: bool = True):
    load = {"codes": {}, "requests": 1, "errors": {}, "p50_ms": 1.0, "p99_ms": 1.0}
    told = Told(sale=SALE, load=load, accepted_ids=[], seconds=1.0, at_rest=at_rest)
    return demo_result.audit(told, environment={})["breaches"]


def bench(monkeypatch, *waits: bool):
    lines = []
    rig = SimpleNamespace(rig=SimpleNamespace(environment={}), say=lines.append)
    monkeypatch.setattr(bench_audit, "look", lambda sale: Numbers(orders=1))
    for rest in waits:
        wait_for_orders(rig, SALE, 1, timeout_s=1, rest=rest)
    rested = waits[-1] if waits else True
    return bench_audit.audit(rig, SALE, [], rested=rested)[1], lines


def test_the_demo_names_what_is_in_motion(said):
    asked = said(report(GATE_GONE, unclear=5))
    assert demo() == [f"in motion: {GATE_GONE}", "in motion: 5 cents (EUR) are unclear"]
    said(report())
    assert demo() == []
    assert len(demo(at_rest=False)) == 1
    assert asked == [True, True, False]


def test_a_scenario_that_waited_for_rest_must_be_at_rest(said, monkeypatch):
    asked = said(report(GATE_GONE))
    for waits in ((True,), (False, True), ()):
        assert bench(monkeypatch, *waits) == ([f"in motion: {GATE_GONE}"], [])
    assert asked == [True] * 3


def test_a_scenario_that_waited_for_its_orders_only_says_what_was_not_compared(said, monkeypatch):
    asked = said(report(GATE_GONE))
    breaches, lines = bench(monkeypatch, False)
    assert (breaches, lines) == ([], [f"totals not compared: in motion: {GATE_GONE}"])
    assert asked == [False]


@pytest.mark.parametrize("found", [report(GATE_GONE), report(unclear=5)])
def test_a_process_test_fails_on_motion(monkeypatch, tmp_path, found):
    said = []

    def manage(self, *args, check=True):
        said.append(args)
        return subprocess.CompletedProcess(args, 0, stdout=json.dumps(found), stderr="")

    monkeypatch.setattr(System, "manage", manage)
    monkeypatch.setattr(System, "at_rest", lambda self, activity: True)
    system = System(stack=None, folder=tmp_path)
    sale = Sale(activity_id=7, sku_id=8, stock=10)

    with pytest.raises(AssertionError):
        system.audit(sale)
    assert "--at-rest" in said[0]

    found |= report()
    assert system.audit(sale) == report()

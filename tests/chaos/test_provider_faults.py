"""A fault of the provider struck when a call met it, not when it was armed."""

from types import SimpleNamespace
from typing import Any

import pytest

from chaos.faults import provider
from chaos.faults.inject import Injected, note_unused
from chaos.faults.scene import ArmedFault, Scene
from chaos.plan import PlannedFault
from chaos.wires import Request

PAY = "/v1/payments"
REFUND = "/v1/payments/pay_s1/refunds"


def armed(target: str, at: float = 10.0, settled: int = 0) -> ArmedFault:
    fault = PlannedFault(name="provider_fault", target=target, at_s=1, for_s=0)
    return ArmedFault(fault=fault, at=at, settled=settled)


def call(method: str, path: str, at: float = 11.0) -> Request:
    return Request(at=at, method=method, path=path)


@pytest.mark.parametrize(
    ("target", "calls", "struck"),
    [
        ("create_payment:decline", [call("POST", PAY)], True),
        ("create_payment:decline", [call("POST", PAY, at=9.0)], False),  # not armed yet
        ("create_payment:decline", [call("POST", REFUND), call("GET", PAY)], False),
        ("refund:error_before", [call("POST", REFUND)], True),
        ("refund:error_before", [call("POST", PAY)], False),
        ("query_payment:not_found", [call("GET", f"{PAY}/pay_s1")], True),
        ("query_payment:not_found", [call("GET", "/v1/refunds/ref_s1")], False),
        ("query_payment:not_found", [], False),
    ],
)
def test_a_fault_strikes_the_calls_of_its_operation(
    target: str, calls: list[Request], struck: bool
) -> None:
    assert provider.used([armed(target)], calls, settled=0) == [struck]


def test_the_older_fault_takes_the_calls_first() -> None:
    both = [armed("create_payment:decline"), armed("create_payment:pending", at=10.5)]
    calls = [call("POST", PAY)] * provider.TIMES
    assert provider.used(both, calls, settled=0) == [True, False]
    assert provider.used(both, [*calls, call("POST", PAY)], settled=0) == [True, True]


def test_a_fault_of_webhooks_strikes_what_is_announced_after_it() -> None:
    hook = armed("webhook:drop", settled=5)
    assert provider.used([hook], [call("POST", PAY)], settled=5) == [False]
    assert provider.used([hook], [], settled=6) == [True]
    later = armed("webhook:late", settled=6)
    assert provider.used([hook, later], [], settled=7) == [True, False]
    assert provider.used([hook, later], [], settled=8) == [True, True]


def scene_with(monkeypatch: pytest.MonkeyPatch, *calls: Request) -> Scene:
    monkeypatch.setattr(provider, "_settled", lambda scene: 0)
    machine: Any = SimpleNamespace(wires=SimpleNamespace(requests=lambda name: list(calls)))
    return Scene(machine=machine, activity_id=1, sku_ids=(1,))


def test_what_no_call_met_is_armed_and_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = scene_with(monkeypatch, call("POST", PAY))
    scene.armed = [armed("create_payment:decline"), armed("refund:error_before")]
    done = [Injected(fault=one.fault, note="") for one in scene.armed]

    note_unused(scene, done)

    assert [record.note for record in done] == ["", "armed, not used"]


def test_what_a_killed_provider_forgot_strikes_nobody_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = scene_with(monkeypatch)
    scene.armed = [armed("create_payment:decline")]
    provider.note_used(scene)  # it is killed now

    again = scene_with(monkeypatch, call("POST", PAY))
    again.armed = scene.armed
    provider.note_used(again)

    assert [one.used for one in again.armed] == [False]

"""Faults of the payment provider, and which of them met a call.

The provider does not tell what of an armed fault is left, so the calls are counted that reach it.
"""

import json
import time
from collections.abc import Iterable, Sequence
from typing import Final

import urllib3

from chaos.faults.scene import ArmedFault, Scene
from chaos.plan import PlannedFault
from chaos.wires import Request

NOT_USED: Final = "armed, not used"
TIMES: Final = 2
_DELAY_MS: Final = 1_500
_PAGE: Final = 1_000
_WEBHOOK: Final = "webhook"


def _kill(scene: Scene, fault: PlannedFault) -> str:
    with scene.heavy:
        note_used(scene)  # what is armed dies with the process
        scene.machine.stack.kill("provider")
        scene.machine.stack.start("provider")
    return ""


def _arm(scene: Scene, fault: PlannedFault) -> str:
    operation, _, name = fault.target.partition(":")
    body = {"operation": operation, "fault": name, "times": TIMES, "delay_ms": _DELAY_MS}
    with scene.heavy:
        armed = ArmedFault(fault=fault, at=time.monotonic(), settled=_settled(scene))
        answer = provider_call(scene, "POST", "/admin/faults", body)
        if answer != 201:
            return f"not injected: the provider answers {answer}"
        scene.armed.append(armed)
    return ""


def note_used(scene: Scene) -> None:
    """Note which armed faults met a call; what is noted stays."""
    waiting = [one for one in scene.armed if one.used is None]
    if not waiting:
        return
    met = used(waiting, scene.machine.wires.requests("provider"), settled=_settled(scene))
    for one, it_met in zip(waiting, met, strict=True):
        one.used = it_met


def used(armed: Sequence[ArmedFault], calls: Iterable[Request], *, settled: int) -> list[bool]:
    """Tell which faults struck: the oldest one takes a call of its operation, TIMES times (pure).

    Args:
        armed: oldest first.
        calls: what reached the provider, oldest first.
        settled: how many payments and refunds are announced by now; each announcement is one that
            a fault of webhooks may spoil.
    """
    left = [TIMES] * len(armed)
    for call in calls:
        operation = _operation(call)
        for n, one in enumerate(armed):
            if left[n] and one.at <= call.at and one.operation == operation:
                left[n] -= 1
                break
    for n, one in enumerate(armed):
        if one.operation == _WEBHOOK:
            before = [e for e in armed[:n] if e.operation == _WEBHOOK]
            taken = sum(max(0, TIMES - (one.settled - e.settled)) for e in before)
            left[n] = max(0, TIMES - max(0, settled - one.settled - taken))
    return [times < TIMES for times in left]


def _operation(call: Request) -> str:
    if call.method == "POST":
        return "refund" if call.path.endswith("/refunds") else "create_payment"
    return "query_payment" if call.path.startswith("/v1/payments") else ""


def _settled(scene: Scene) -> int:
    """Count the book's entries whose webhook is decided: sent, or spoilt by a fault."""
    count, after = 0, 0
    while True:
        page = _ask(scene, "GET", f"/v1/book?after={after}&limit={_PAGE}").json()
        count += sum(1 for line in page["lines"] if line["entry"]["status"] != "PENDING")
        after = page["next"]
        if not after:
            return count


def provider_call(scene: Scene, method: str, path: str, body: object = None) -> int:
    """Ask the sandbox provider's admin side; return its status code."""
    status: int = _ask(scene, method, path, body).status
    return status


def _ask(
    scene: Scene, method: str, path: str, body: object = None
) -> urllib3.response.BaseHTTPResponse:
    environment = scene.machine.stack.environment()
    return urllib3.request(
        method,
        environment["PAYMENT_PROVIDER_URL"] + path,
        body=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {environment['PAYMENT_PROVIDER_KEY']}"},
        timeout=5,
        retries=False,
    )


INJECTORS: Final = {"provider_kill": _kill, "provider_fault": _arm}

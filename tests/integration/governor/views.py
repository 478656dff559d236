"""Decisions that a test publishes."""

import time
from typing import Any

from inventory.gate import gate
from messaging.topology import CG_ORDER_CREATE
from seckill.governor import store
from seckill.governor.view import GovernorView, GroupPace, Level, encode


def view(**changes: Any) -> GovernorView:
    values: dict[str, Any] = {
        "level": Level.NORMAL,
        "entry_rate": 0.0,
        "groups": {CG_ORDER_CREATE: GroupPace(workers=1, batch=128)},
        "reasons": ("ALL_WELL",),
        "decided_at_ms": time.time_ns() // 1_000_000,
    }
    return GovernorView(**(values | changes))


def publish(ttl_ms: int = 60_000, **changes: Any) -> None:
    gate().run(store.publish(decision=encode(view(**changes)), ttl_ms=ttl_ms))


def poll(condition: Any, *, within_s: float = 5.0) -> float:
    """Wait for the condition; return the seconds it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < within_s, "not within its time"
        time.sleep(0.01)
    return time.monotonic() - began

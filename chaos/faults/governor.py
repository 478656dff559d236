"""Faults of the governor: it stands still, is misled by its senses, or is spoken over."""

import json
import signal
import time
from typing import Final

import psycopg

from chaos.faults.processes import wake
from chaos.faults.scene import Scene
from chaos.faults.stores import redis_client
from chaos.plan import PlannedFault

_AGAIN_S: Final = 0.05
_NESTED: Final = 50_000
_NONSENSE: Final = (
    '{"lag_s": 1e300, "batch": "many", "tx_p95_ms": null, "tx_p99_ms": -1, "drain_per_s": [],'
    ' "busy_per_s": true, "pool_wait_p95_ms": {"a": 1}, "receiving": 3}'
)
_SPOIL_HEARTBEATS: Final = """
UPDATE messaging_heartbeat SET detail = detail || %s::jsonb
 WHERE beat_at > now() - interval '1 minute'
RETURNING 1
"""


def _stopped(scene: Scene, fault: PlannedFault) -> str:
    """SIGSTOP until its last word has ended: everybody has to be careful by himself."""
    from seckill.governor import store

    scene.machine.signal("scanner", signal.SIGSTOP)
    time.sleep(fault.for_s)
    with redis_client(scene) as client:
        silent = not client.exists(store.DECISION)
    wake(scene)
    return "" if silent else "another one governed"


def _misled(scene: Scene, fault: PlannedFault) -> str:
    """Wrong inputs: the broker's page of metrics, or what workers say of themselves."""
    source, _, how = fault.target.partition(":")
    if source == "heartbeats":
        return _spoil_heartbeats(scene, fault)
    scene.machine.exporter.spoil(how)
    time.sleep(fault.for_s)
    asked = scene.machine.exporter.spoilt
    scene.machine.exporter.heal()
    return "" if asked else "nobody asked"


def _spoil_heartbeats(scene: Scene, fault: PlannedFault) -> str:
    ended = time.monotonic() + fault.for_s
    struck = 0
    while time.monotonic() < ended:
        try:
            struck += len(scene.sql(_SPOIL_HEARTBEATS, _NONSENSE))
        except psycopg.Error:
            continue  # another fault has the database
        finally:
            time.sleep(_AGAIN_S)
    return "" if struck else "nobody had a heartbeat"


def _spoken_over(scene: Scene, fault: PlannedFault) -> str:
    """Write over its decision (or its lead) again and again."""
    from redis.exceptions import RedisError

    from seckill.governor import store

    key = store.LEADER if fault.target == "lead" else store.DECISION
    said, struck = said_instead(fault.target), 0
    ended = time.monotonic() + fault.for_s
    with redis_client(scene) as client:
        while time.monotonic() < ended:
            try:
                client.set(key, said, px=1_000)
                struck += 1
            except RedisError:
                pass  # another fault has Redis
            time.sleep(_AGAIN_S)
    return "" if struck else "Redis was away"


def _decision(**changes: object) -> bytes:
    """A decision in the governor's own words."""
    from_nobody = {
        "level": "NORMAL",
        "entry_rate": 0.0,
        "groups": {},
        "reasons": ["FAULT_SEARCH"],
        "decided_at_ms": 1,
    }
    return json.dumps(from_nobody | changes).encode()


def _pace(workers: int, batch: int) -> dict[str, dict[str, int]]:
    from messaging.topology import GROUPS

    return {group.name: {"workers": workers, "batch": batch} for group in GROUPS}


def said_instead(target: str) -> bytes:
    """Return what is written in the governor's place."""
    match target:
        case "lead":
            return b"a stranger"
        case "garbage":
            return bytes(range(256))
        case "nested":
            deep = b'{"a":' + b"[" * _NESTED + b"]" * _NESTED + b"}"
            return _decision(signals="@").replace(b'"@"', deep)
        case "closed":
            return _decision(level="FAIL_CLOSED", entry_rate=1e-9)
        case "idle":
            return _decision(groups=_pace(0, 1))
        case _:  # extreme
            return _decision(
                groups=_pace(10**9, 10**9),
                entry_rate=1e308,
                entry_burst=1e308,
                decided_at_ms=2**62,
                max_open=-(2**62),
                max_pending=2**62,
                web_processes=-5,
            )


INJECTORS: Final = {
    "governor_stopped": _stopped,
    "governor_misled": _misled,
    "governor_spoken_over": _spoken_over,
}

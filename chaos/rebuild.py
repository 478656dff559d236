"""After a loss of Redis: wait until the product has noticed, then rebuild as the runbook says."""

import subprocess
import sys
import time
from typing import Final

from django.db import Error as DatabaseFailure
from django.db import connection

from chaos.faults.scene import Scene
from inventory.errors import GateUnavailable, OperationRefused, RebuildOvertaken
from orders.errors import RebuildWaits
from orders.rebuild.gate import rebuild_gate
from seckill.demo.supervision import CHECKOUT

_RETURN_S: Final = 60.0
_LOSS_SEEN_S: Final = 30.0
_QUIET_S: Final = 3.0  # every served sale is looked at once a second
_POLL_S: Final = 0.2
_REBUILD_TRIES: Final = 6
_REBUILD_S: Final = 90.0
_LOST_SALES: Final = """
SELECT id FROM inventory_activity WHERE loss_noted_at IS NOT NULL OR rebuild_unfinished ORDER BY id
"""


def rebuild(scene: Scene) -> list[str]:
    """Wait until the product notices the loss by itself, then do what its runbook says.

    Losses are noted one sale after the other: it goes on until this sale's gate is there again and
    nothing more was noted for a while.

    Returns:
        Breaches, one line each: nobody noticed, or a gate was not made anew.
    """
    deadline = time.monotonic() + _RETURN_S
    while not scene.redis_returned_ms and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    deadline = time.monotonic() + _LOSS_SEEN_S
    quiet_since, done = time.monotonic(), set[int]()
    while scene.activity_id not in done or time.monotonic() < quiet_since + _QUIET_S:
        sales = _lost_sales()
        for activity_id in sales:
            why = _rebuild_one(scene, activity_id)
            if why:
                return [f"rebuild_gate {activity_id}: {why}"]
            done.add(activity_id)
            quiet_since = time.monotonic()
        if scene.activity_id not in done and time.monotonic() > deadline:
            return [f"no loss noticed within {_LOSS_SEEN_S:.0f} s"]
        time.sleep(_POLL_S)
    return []


def _rebuild_one(scene: Scene, activity_id: int) -> str:
    """Run the command until it succeeds; return "", or why it did not."""
    why = ""
    for _ in range(_REBUILD_TRIES):
        try:
            why = _command(scene) if activity_id == scene.activity_id else _at_rest(activity_id)
        except subprocess.TimeoutExpired as error:
            said = error.stdout or b""
            text = said.decode(errors="replace") if isinstance(said, bytes) else said
            return f"not done within {_REBUILD_S:.0f} s: {text.strip()[-300:]}"
        if not why:
            return ""
    return why


def _command(scene: Scene) -> str:
    """Run `rebuild_gate` as a person would; a fault may kill it."""
    done = subprocess.run(
        [sys.executable, "manage.py", "rebuild_gate", str(scene.activity_id), "--yes"],
        cwd=CHECKOUT,
        env=scene.machine.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=_REBUILD_S,
    )
    return "" if done.returncode == 0 else done.stdout.strip()[-300:] or f"rc {done.returncode}"


def _at_rest(activity_id: int) -> str:
    """Make the gate of an earlier sale anew: at rest, nothing of it can have been lost."""
    try:
        rebuild_gate(activity_id=activity_id, force=True, reason="fault search", poll_s=0.05)
    except (GateUnavailable, OperationRefused, RebuildOvertaken, RebuildWaits) as error:
        return f"{type(error).__name__}: {error}"
    except DatabaseFailure as error:
        connection.close()
        return f"{type(error).__name__}: {error}"
    return ""


def _lost_sales() -> list[int]:
    try:
        with connection.cursor() as cursor:
            cursor.execute(_LOST_SALES)
            return [row[0] for row in cursor.fetchall()]
    except Exception:
        connection.close()
        return []

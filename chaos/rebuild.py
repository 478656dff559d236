"""After a loss of Redis: wait until the product has noticed, then rebuild as the runbook says."""

import subprocess
import sys
import time
from typing import Final

from django.db import connection

from chaos.faults.scene import Scene
from seckill.demo.supervision import CHECKOUT

_RETURN_S: Final = 60.0
_LOSS_SEEN_S: Final = 30.0
_REBUILD_TRIES: Final = 6
_REBUILD_S: Final = 90.0
_LOST_SALES: Final = """
SELECT id FROM inventory_activity WHERE loss_noted_at IS NOT NULL OR rebuild_unfinished ORDER BY id
"""


def rebuild(scene: Scene) -> list[str]:
    """Wait until the product notices the loss by itself, then do what its runbook says.

    Returns:
        Breaches, one line each: nobody noticed, or a gate was not made anew.
    """
    deadline = time.monotonic() + _RETURN_S
    while not scene.redis_returned_ms and time.monotonic() < deadline:
        time.sleep(0.2)
    deadline = time.monotonic() + _LOSS_SEEN_S
    while not (sales := _lost_sales()):
        if time.monotonic() > deadline:
            return [f"no loss noticed within {_LOSS_SEEN_S:.0f} s"]
        time.sleep(0.2)
    time.sleep(1.5)  # every served sale is looked at once a second
    sales = _lost_sales() or sales
    breaches = []
    for activity_id in sales:
        # Other sales are at rest: nothing of theirs can have been lost on its way.
        force = () if activity_id == scene.activity_id else ("--force",)
        why = _rebuild_one(scene, activity_id, force)
        if why:
            breaches.append(f"rebuild_gate {activity_id}: {why}")
    return breaches


def _rebuild_one(scene: Scene, activity_id: int, force: tuple[str, ...]) -> str:
    """Run the command until it succeeds; return "", or why it did not."""
    why = ""
    for _ in range(_REBUILD_TRIES):
        try:
            done = subprocess.run(
                [sys.executable, "manage.py", "rebuild_gate", str(activity_id), "--yes", *force],
                cwd=CHECKOUT,
                env=scene.machine.environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=_REBUILD_S,
            )
        except subprocess.TimeoutExpired as error:
            said = error.stdout or b""
            text = said.decode(errors="replace") if isinstance(said, bytes) else said
            return f"not done within {_REBUILD_S:.0f} s: {text.strip()[-300:]}"
        if done.returncode == 0:
            return ""
        why = done.stdout.strip()[-300:]
    return why


def _lost_sales() -> list[int]:
    try:
        with connection.cursor() as cursor:
            cursor.execute(_LOST_SALES)
            return [row[0] for row in cursor.fetchall()]
    except Exception:
        connection.close()
        return []

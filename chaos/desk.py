"""What dies in a seed, and the people who deal with it, until nothing of it is left."""

import threading
import time
from typing import Final

from django.db import Error as DatabaseFailure
from django.db import connection

from chaos.buyers import Crowd
from chaos.faults.scene import Scene
from chaos.plan import BuyerPlan, Plan

_PAUSE_S: Final = 0.3
_TRIES: Final = 3
# The error codes that the search's own deaths have; anything else that dies is a breach.
PLANNED: Final = ("BUYER_ID_UNREADABLE", "INVALID_JSON", "SCHEMA_UNSUPPORTED")
_LEFT: Final = """
SELECT (SELECT count(*) FROM messaging_quarantine WHERE status = 'OPEN' AND reason = ANY(%(p)s)),
       (SELECT count(*) FROM dlq_ticket t JOIN dlq_failure_group g ON g.id = t.failure_group_id
         WHERE t.status NOT IN ('CLOSED', 'DISCARDED', 'MERGED') AND g.error_class = ANY(%(p)s)),
       (SELECT count(*) FROM dlq_admin_replay_batch
         WHERE status IN ('APPROVED', 'CANARY', 'RUNNING', 'PAUSED', 'THROTTLED')
            OR (started_at IS NOT NULL AND closed_at IS NULL))
"""
_SAYINGS: Final = ("{} dead messages open", "{} tickets open", "{} replay batches not closed")


def left() -> list[str]:
    """Return what of the planned deaths is not dealt with yet.

    Raises:
        django.db.Error: nobody knows.
    """
    with connection.cursor() as cursor:
        cursor.execute(_LEFT, {"p": list(PLANNED)})
        counts = cursor.fetchone()
    return [saying.format(n) for saying, n in zip(_SAYINGS, counts, strict=True) if n]


class Desk:
    """The deaths of a seed and the work at them, in a thread.

    Args:
        scene: where.
        plan: what dies, and when the bug is mended.
        crowd: is told what the dead were promised.
    """

    def __init__(self, scene: Scene, plan: Plan, crowd: Crowd) -> None:
        self._scene = scene
        self._plan = plan
        self._crowd = crowd
        self._over = threading.Event()
        self._died = threading.Event()
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._opened_at = 0.0

    def buyers(self) -> tuple[BuyerPlan, ...]:
        """Return the buyers whom the handler's bug hits: they come through the front door."""
        return tuple(
            BuyerPlan(
                user=dead.user,
                at_s=dead.at_s,
                sku=0,
                quantity=1,
                second="",
                afterwards="pay",
                wait_s=0.0,
            )
            for dead in self._plan.dead
            if dead.how == "bug"
        )

    def begin(self, opened_at: float) -> None:
        """Let messages die at their times, and people work."""
        self._opened_at = opened_at
        if self._plan.dead:
            self._scene.machine.bug.touch()
            self._thread.start()

    def wait(self, timeout_s: float) -> None:
        """Wait until everything that died is dealt with, or the time is over."""
        deadline = time.monotonic() + timeout_s
        while self._plan.dead and time.monotonic() < deadline:
            try:
                if self._died.is_set() and not left():
                    return
            except DatabaseFailure:
                connection.close()
            time.sleep(_PAUSE_S)

    def end(self) -> None:
        """Let people go home."""
        self._over.set()
        self._scene.machine.bug.unlink(missing_ok=True)
        if self._plan.dead:
            self._thread.join(30)

    def _live(self) -> None:
        for dead in sorted(self._plan.dead, key=lambda one: one.at_s):
            if dead.how != "bug":
                self._sleep_until(dead.at_s)
                self._poison(dead.how, dead.user)
        wish = "replay" if self._plan.hits_replay else ""
        fixed_at = self._opened_at + self._plan.fixed_at_s
        while not self._over.is_set():
            if not self._died.is_set() and time.monotonic() >= fixed_at:
                self._scene.machine.bug.unlink(missing_ok=True)
                self._died.set()
            self._do("desk", wish)
            self._over.wait(_PAUSE_S)

    def _poison(self, how: str, user: str) -> None:
        for _ in range(_TRIES):
            answer = self._do(how, user)
            if answer.startswith("ok rsv_"):
                with self._crowd.told.lock:
                    self._crowd.told.promised[answer.removeprefix("ok ")] = "QUEUED"
                return
            self._over.wait(_PAUSE_S)

    def _do(self, verb: str, operation_id: str) -> str:
        return self._scene.machine.desk.do(
            verb,
            activity_id=self._scene.activity_id,
            sku_id=self._scene.sku_ids[0],
            units=1,
            operation_id=operation_id,
        )

    def _sleep_until(self, at_s: float) -> None:
        self._over.wait(max(0.0, self._opened_at + at_s - time.monotonic()))

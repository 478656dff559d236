"""The decision as one web process obeys it: its share of what the whole system may let in."""

import os
import secrets
import socket

from django.conf import settings

from seckill.admission.limits import Limits, static_limits
from seckill.governor.follower import Follower
from seckill.governor.view import GovernorView, Level


def limits_of(view: GovernorView, *, user_rate: float) -> Limits:
    """Return a process's limits: an equal share, whatever comes to the others."""
    processes = max(1, view.web_processes)
    return Limits(
        user_rate=user_rate,
        entry_rate=view.entry_rate / processes,
        entry_burst=view.entry_burst / processes,
        open=view.level is not Level.FAIL_CLOSED,
        busy=view.busy_activities,
    )


class EntryLimits:
    """Asked for each request: static while SECKILL_GOVERNOR is off, else the governor's.

    Args:
        follower: its copy of the decision; tests put their own in.
    """

    def __init__(self, follower: Follower | None = None) -> None:
        name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._static = static_limits()
        self._follower = follower
        if follower is None and settings.SECKILL_GOVERNOR == "on":
            self._follower = Follower(web_process=name)
            self._follower.current()  # counted, and informed, before the first buyer comes
        self._view: GovernorView | None = None
        self._limits = self._static

    def __call__(self) -> Limits:
        """Return the limits in force. Cost: two comparisons while nothing changed."""
        if self._follower is None:
            return self._static
        view = self._follower.current()
        if view is not self._view:
            self._view = view
            self._limits = limits_of(view, user_rate=self._static.user_rate)
        return self._limits

    def close(self) -> None:
        """End the thread that follows, and leave the share to the others."""
        if self._follower is not None:
            self._follower.close()

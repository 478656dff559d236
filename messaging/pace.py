"""How hard a loop may work now: whoever governs says so, the loop asks at every turn (no I/O)."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """What one loop may do.

    Args:
        batch: most messages in one transaction; 0: receive nothing, finish what waits.
        spare: others of its group work in its place: its silence is no lag.
    """

    batch: int
    spare: bool = False


PaceOf = Callable[[], Pace]

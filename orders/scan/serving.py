"""Which sales the jobs look after, read from PostgreSQL at most once a second a process."""

import time
from typing import Final

from inventory import selectors

_MAX_AGE_S: Final = 1.0
_known: tuple[float, list[int]] = (-_MAX_AGE_S, [])


def serving_activities() -> list[int]:
    """Return the sales that were opened and are not SETTLED, up to a second old."""
    global _known
    read_at, activities = _known
    if time.monotonic() - read_at >= _MAX_AGE_S:
        activities = selectors.serving_activities()
        _known = (time.monotonic(), activities)
    return activities

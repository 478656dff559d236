"""Which sales the jobs look after, read from PostgreSQL at most once a second a process."""

import time
from collections.abc import Callable
from typing import Final

from inventory import selectors
from inventory.turns import take_turns

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


def serve_each(serve: Callable[[int], int]) -> int:
    """Serve each of these sales; one that fails keeps no other from its turn (`take_turns`)."""
    return take_turns(serving_activities(), serve, sale_of=int)

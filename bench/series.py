"""Rates over time as short lists of points, for plots: computed after a run, not in it."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

Point = tuple[float, float]  # seconds since the start, value
MOST: Final = 120


def rates(counts: Sequence[Point]) -> list[Point]:
    """Return rates per second between looks at a counter.

    Args:
        counts: (seconds, count so far). A count that fell was started anew there: no rate.
    """
    found = [
        (round(at, 2), round((count - before) / (at - since), 1))
        for (since, before), (at, count) in pairwise(counts)
        if at > since and count >= before
    ]
    return thin(found)


def per_second(instants: Sequence[float], *, start: float) -> list[Point]:
    """Return how many of the ascending instants fell into each span of a second or more.

    Args:
        instants: any clock in seconds.
        start: what becomes second 0; earlier instants are left out.
    """
    if not instants or instants[-1] <= start:
        return []
    span = max(1.0, (instants[-1] - start) / MOST)
    edges = [start + n * span for n in range(int((instants[-1] - start) / span) + 2)]
    places = [bisect_left(instants, edge) for edge in edges]
    return [
        (round(edge - start + span, 2), round((after - before) / span, 1))
        for edge, before, after in zip(edges, places, places[1:], strict=False)
    ]


def thin(points: Sequence[Point]) -> list[Point]:
    """Return at most `MOST` points: neighbours become their mean, at the last one's time."""
    width = -(-len(points) // MOST) or 1
    groups = [points[n : n + width] for n in range(0, len(points), width)]
    return [
        (group[-1][0], round(sum(value for _, value in group) / len(group), 1)) for group in groups
    ]

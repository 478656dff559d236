"""What this web process still has to reach before it may be called warm; `/readyz` tells.

Connections are opened before the first buyer needs them. What could not be reached at the start is
tried again each second.
"""

from collections.abc import Iterable

_cold: set[str] = set()


def expect(parts: Iterable[str]) -> None:
    """A process begins to warm up: nothing of this is warm yet."""
    _cold.clear()
    _cold.update(parts)


def reached(part: str) -> None:
    """A part answered."""
    _cold.discard(part)


def forget() -> None:
    """The process ends, or has nothing to warm up."""
    _cold.clear()


def cold() -> frozenset[str]:
    """Return what is not warm yet; empty in a process that has nothing to warm up."""
    return frozenset(_cold)

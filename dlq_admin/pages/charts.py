"""Plots as inline SVG, drawn here from numbers; colours come from the style sheet."""

from collections.abc import Sequence
from typing import Final

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

_WIDTH: Final = 640
_HEIGHT: Final = 156
_LEFT: Final = 34
_BOTTOM: Final = 26


def sparkline(values: Sequence[int], *, label: str) -> SafeString:
    """Draw small bars, oldest first.

    Args:
        values: counts of equal spans of time.
        label: what they are, for who cannot see them.
    """
    most = max([*values, 1])
    width = 96 / max(len(values), 1)
    bars = "".join(
        _bar(x=place * width, y=24 - height, width=max(width - 1, 1), height=height)
        for place, value in enumerate(values)
        if (height := 22 * value / most if value else 0)
    )
    return _svg(
        f'<line class="axis" x1="0" y1="23.5" x2="96" y2="23.5"/>{bars}',
        kind="spark", box="0 0 96 24", label=label,
    )  # fmt: skip


def columns(
    values: Sequence[int], *, names: Sequence[str], label: str, tone: str = ""
) -> SafeString:
    """Draw a plot of columns with an axis and a few names below.

    Args:
        values: one number a column.
        names: one name a column; an empty one is not drawn.
        label: what they are.
        tone: good, warn, bad, or empty.
    """
    most = _nice(max([*values, 1]))
    room = _WIDTH - _LEFT
    width = room / max(len(values), 1)
    tall = _HEIGHT - _BOTTOM - 8
    parts = []
    for level in (0, most / 2, most):
        y = 8 + tall * (1 - level / most)
        parts.append(
            f'<line class="axis" x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH}" y2="{y:.1f}"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{level:g}</text>'
        )
    for place, (value, name) in enumerate(zip(values, names, strict=True)):
        height = tall * value / most
        x = _LEFT + place * width
        if value:
            parts.append(
                _bar(x=x + 1, y=8 + tall - height, width=max(width - 2, 1), height=height,
                     tone=tone, title=f"{name} {value}")
            )  # fmt: skip
        if name:
            parts.append(
                f'<text x="{x + width / 2:.1f}" y="{_HEIGHT - 5}" text-anchor="middle">'
                f"{escape(name)}</text>"
            )
    return _svg("".join(parts), kind="plot", box=f"0 0 {_WIDTH} {_HEIGHT}", label=label)


def progress(parts: Sequence[tuple[int, str]], *, total: int, label: str) -> SafeString:
    """Draw one bar of several parts.

    Args:
        parts: numbers and their tones, from left to right.
        total: the whole; what is left of it stays pale.
        label: what it says in words.
    """
    drawn = ['<rect class="rest" x="0" y="0" width="640" height="14" rx="3"/>']
    x = 0.0
    for number, tone in parts:
        width = 640 * number / total if total else 0.0
        if width:
            drawn.append(_bar(x=x, y=0, width=width, height=14, tone=tone))
        x += width
    return _svg("".join(drawn), kind="plot", box="0 0 640 14", label=label)


def _bar(
    *, x: float, y: float, width: float, height: float, tone: str = "", title: str = ""
) -> str:
    inner = f"<title>{escape(title)}</title>" if title else ""
    return (
        f'<rect class="bar {escape(tone)}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}"'
        f' height="{height:.1f}">{inner}</rect>'
    )


def _svg(inner: str, *, kind: str, box: str, label: str) -> SafeString:
    return mark_safe(  # noqa: S308  (numbers, and text that was escaped above)
        f'<svg class="{kind}" viewBox="{box}" role="img" aria-label="{escape(label)}">{inner}</svg>'
    )


def _nice(most: int) -> int:
    """Return the next of 2, 4, 10, 20, 40, 100 …: half of it is a whole number."""
    step = 1
    while True:
        for factor in (2, 4, 10):
            if factor * step >= most:
                return factor * step
        step *= 10

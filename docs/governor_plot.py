"""Draws docs/images/governor.svg from the simulation: `python -m docs.governor_plot`."""

from pathlib import Path
from typing import Final

from messaging.topology import CG_INVENTORY_COMPENSATE, CG_ORDER_CREATE, enabled_groups
from seckill.governor.memory import Means
from seckill.governor.simulation import Second, simulate

FILE: Final = Path(__file__).resolve().parent / "images" / "governor.svg"
CAPACITY: Final = 1_000
OFFERED: Final = 3 * CAPACITY
CROWD_S: Final = 20
SECONDS: Final = 70
_WIDTH, _HEIGHT, _LEFT, _TOP = 760, 260, 60, 40
_COLOURS: Final = {"off": "#b3261e", "on": "#0b57d0", "known": "#146c2e"}


def means(*, drain_per_s: float = 0.0) -> Means:
    """Return the governor's fixed numbers; with drain_per_s 0 it has to learn its capacity."""
    return Means(
        groups=tuple((group.name, group.core) for group in enabled_groups()),
        order_group=CG_ORDER_CREATE,
        compensate_group=CG_INVENTORY_COMPENSATE,
        drain_per_s=drain_per_s,
    )


def run(by: Means | None) -> list[Second]:
    """Let the crowd come; None is no governor."""
    return simulate(
        offered_per_s=OFFERED,
        crowd_s=CROWD_S,
        capacity_per_s=CAPACITY,
        seconds=SECONDS,
        means=by,
    )


def curves() -> dict[str, list[Second]]:
    """Return the three runs: no governor, one that has to learn, one that knows its capacity."""
    return {"off": run(None), "on": run(means()), "known": run(means(drain_per_s=CAPACITY))}


def draw() -> str:
    """Return the picture: lag of the order group over time."""
    runs = curves()
    highest = 42.0
    names = {
        "off": "no governor",
        "on": "governor, capacity unknown",
        "known": "governor, SECKILL_DRAIN_RATE set",
    }

    def x(second: float) -> float:
        return _LEFT + second * (_WIDTH - _LEFT - 20) / SECONDS

    def y(lag_s: float) -> float:
        return _TOP + _HEIGHT - lag_s * _HEIGHT / highest

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT + _TOP + 60}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT + _TOP + 60}" fill="white"/>',
        f'<text x="{_LEFT}" y="20" font-size="14">Age of what the order group handles (s): '
        f"{OFFERED}/s for {CROWD_S} s on consumers of {CAPACITY}/s, simulated</text>",
    ]
    for tick in range(0, 41, 10):
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - 20}" y1="{y(tick):.0f}" y2="{y(tick):.0f}"'
            f' stroke="#ddd"/><text x="{_LEFT - 28}" y="{y(tick) + 4:.0f}">{tick}</text>'
        )
    parts.append(
        f'<line x1="{_LEFT}" x2="{_WIDTH - 20}" y1="{y(3):.0f}" y2="{y(3):.0f}" stroke="#888"'
        f' stroke-dasharray="4 4"/><text x="{_WIDTH - 80}" y="{y(3) - 4:.0f}">3 s: SLO</text>'
    )
    for tick in range(0, SECONDS + 1, 10):
        parts.append(f'<text x="{x(tick) - 6:.0f}" y="{_TOP + _HEIGHT + 18}">{tick} s</text>')
    for place, (name, run) in enumerate(runs.items()):
        points = " ".join(f"{x(one.at_s):.1f},{y(one.lag_s):.1f}" for one in run)
        accepted = sum(one.accepted for one in run)
        worst = max(one.lag_s for one in run)
        parts += [
            f'<polyline points="{points}" fill="none" stroke="{_COLOURS[name]}" stroke-width="2"/>',
            f'<text x="{_LEFT + 8}" y="{_TOP + 16 + 18 * place}" fill="{_COLOURS[name]}">'
            f"{names[name]}: {accepted} accepted, up to {worst:.1f} s</text>",
        ]
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    """Write the picture."""
    FILE.write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()

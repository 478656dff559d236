"""Plots of kept results as SVG, for the documentation: `bin/bench plots`.

The newest result of each scenario that has something to draw: rates over time, the latency
curves of all scenarios, rates by connections, orders per second against the size of the history.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from bench.record import RESULTS
from bench.runs import ROOT, RunFailed
from bench.scenarios import SCENARIOS

IMAGES: Final = ROOT / "docs" / "images"
_TIMES: Final = ("(s)", "(MB)")
_FROM: Final = {
    "answers": "from request to answer",
    "orders": "from reservation to committed order",
}
_SIZE: Final = {"width": 760, "height": 320}


def newest(records: Iterable[Mapping[str, Any]], *, has: str) -> Mapping[str, Any] | None:
    """Return the last record that has this key."""
    return next((record for record in reversed(list(records)) if record.get(has)), None)


def families(series: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Sort curves into plots by what they count: rates, seconds, MB, numbers."""
    found: dict[str, dict[str, Any]] = {}
    for name, points in series.items():
        if name.endswith("/s"):
            family = "rates"
        elif unit := next((unit for unit in _TIMES if unit in name), ""):
            family = {"(s)": "lag", "(MB)": "memory"}[unit]
        else:
            family = "waiting"
        found.setdefault(family, {})[name] = points
    return found


def by_connections(records: Iterable[Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    """Return the newest record for each number of connections, ascending."""
    found = {record["connections"]: record for record in records}
    return dict(sorted(found.items()))


def draw_all(console: Console, files: list[Path], folder: Path = IMAGES) -> int:
    """Draw everything there is; return 0.

    Args:
        console: for the names of what was drawn.
        files: results of `--json`; without any, all that is kept.
        folder: where the pictures go.

    Raises:
        RunFailed: nothing is there to draw.
    """
    records: dict[str, list[Mapping[str, Any]]] = {}
    for file in files or sorted(RESULTS.glob("*.json")):
        if file.name == "recorded.json":
            continue
        found = json.loads(file.read_bytes())
        for record in found if isinstance(found, list) else [found]:
            records.setdefault(record["scenario"], []).append(record)
    pictures = draw(records)
    if not pictures:
        raise RunFailed("no result has anything to draw: run a scenario first")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pictures.items():
        (folder / f"bench-{name}.svg").write_text(text, encoding="utf-8")
        console.print(f"bench-{name}.svg")
    return 0


def draw(records: Mapping[str, list[Mapping[str, Any]]]) -> dict[str, str]:
    """Return the pictures by name, from all records by scenario, oldest first."""
    pictures: dict[str, str] = {}
    curves: dict[str, dict[str, Mapping[str, float]]] = {}
    for scenario, kept in records.items():
        if latest := newest(kept, has="series"):
            for family, series in families(latest["series"]).items():
                title = f"{scenario}: {latest['rate_per_s']:.0f} {latest['unit']}"
                pictures[f"{scenario}-{family}"] = _over_time(title, series)
        if latest := newest(kept, has="percentiles_ms"):
            of_answers = SCENARIOS[scenario].times.startswith("from request")
            kind = "answers" if of_answers else "orders"
            curves.setdefault(kind, {})[scenario] = latest["percentiles_ms"]
        if latest := newest(kept, has="orders_per_s_by_history"):
            pictures[f"{scenario}-history"] = _history(latest["orders_per_s_by_history"])
    for kind, alike in curves.items():
        pictures[f"latency-{kind}"] = _latency(kind, alike)
    swept = by_connections(records.get("accept", []))
    if len(swept) > 1:
        pictures["accept-connections"] = _connections(swept)
    return pictures


def _over_time(title: str, series: Mapping[str, Any]) -> str:
    chart = _chart("XY", title, x_title="seconds", show_dots=False)
    for name, points in series.items():
        chart.add(name, [tuple(point) for point in points])
    return _text(chart)


def _latency(kind: str, curves: Mapping[str, Mapping[str, float]]) -> str:
    highest = max(max(curve.values()) for curve in curves.values())
    labels = [10**power for power in range(7) if 10**power < 10 * highest]
    chart = _chart("Line", f"{_FROM[kind]} (ms) by percentile", logarithmic=True, y_labels=labels)
    percents = sorted({percent for curve in curves.values() for percent in curve}, key=float)
    chart.x_labels = [f"p{percent}" for percent in percents]
    for scenario, curve in curves.items():
        chart.add(scenario, [curve.get(percent) or None for percent in percents])
    return _text(chart)


def _history(rates: Mapping[str, float]) -> str:
    chart = _chart("Bar", "orders/s by old orders in the tables", show_legend=False)
    chart.x_labels = [f"{int(size):,}".replace(",", " ") for size in rates]
    chart.add("orders/s", list(rates.values()))
    return _text(chart)


def _connections(swept: Mapping[int, Mapping[str, Any]]) -> str:
    slowest = max(record["p99_ms"] for record in swept.values())
    chart = _chart(
        "Bar",
        "accept: accepted/s (left) and p99 in ms (right) by connections",
        secondary_range=(0, slowest),
        value_formatter=lambda value: f"{value:.0f}",
    )
    chart.x_labels = [str(number) for number in swept]
    chart.add("accepted/s", [record["rate_per_s"] for record in swept.values()])
    chart.add("p99 (ms)", [record["p99_ms"] for record in swept.values()], secondary=True)
    return _text(chart)


def _chart(kind: str, title: str, **options: Any) -> Any:
    import pygal  # type: ignore[import-untyped,unused-ignore]  # a tool of the documentation: measuring must not need it
    from pygal.style import CleanStyle  # type: ignore[import-untyped,unused-ignore]

    # Its finder of plugins speaks a protocol that Python has dropped: later imports would warn.
    sys.meta_path[:] = [f for f in sys.meta_path if type(f).__name__ != "PluginImportFixer"]
    options = {"x_title": "", "dots_size": 1, "stroke_style": {"width": 2}} | options
    return getattr(pygal, kind)(
        **_SIZE,
        title=title,
        style=CleanStyle(background="white", plot_background="white", title_font_size=15),
        js=[],  # no script from elsewhere
        legend_at_bottom=True,
        pretty_print=True,
        no_prefix=True,  # equal results make equal files
        **options,
    )


def _text(chart: Any) -> str:
    return str(chart.render(is_unicode=True)) + "\n"

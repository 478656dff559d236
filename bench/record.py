"""The result of one run: made, printed, kept."""

import json
import os
import time
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.answers import COME_AGAIN
from bench.bench import Outcome, Wish
from bench.calibration import Calibration
from bench.scenarios import Scenario

RESULTS: Final = Path(__file__).resolve().parent / "results"
_MUST_BE_0: Final = ("errors", "lost", "broken", "oversold", "duplicates")


def make_record(
    scenario: Scenario, wish: Wish, outcome: Outcome, calibration: Calibration
) -> dict[str, Any]:
    """Return what is printed, written and kept of one run."""
    rates = {
        "echo_per_s": calibration.echo_per_s,
        "send_per_s": calibration.send_per_s,
        "commits_per_s": calibration.commits_per_s,
    }
    ratios = {
        key: round(outcome.rate_per_s / rate, 3) if rate else 0.0 for key, rate in rates.items()
    }
    return {
        "scenario": wish.scenario,
        "rate_per_s": outcome.rate_per_s,
        "unit": scenario.unit,
        "p50_ms": outcome.p50_ms,
        "p95_ms": outcome.p95_ms,
        "p99_ms": outcome.p99_ms,
        "errors": outcome.errors,
        "cores": os.cpu_count(),
        "ratio": ratios[scenario.calibration],
        "ratio_to": scenario.calibration,
        "calibration": {key: round(rate, 1) for key, rate in rates.items()},
        "ratios": ratios,
        "connections": outcome.connections,
        "appendfsync": wish.appendfsync,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **(outcome.orders or {}),
        **outcome.more,
        **({"percentiles_ms": outcome.latency.curve()} if outcome.latency else {}),
        **({"series": outcome.series} if outcome.series else {}),
        "notes": outcome.notes,
    }


def wrong(record: dict[str, Any]) -> str:
    """Return what makes a run worth nothing, however fast it was; empty when it was right.

    Answers that ask the buyer to come again are none of it while he ends well.
    """
    found = [f"{key} {record[key]}" for key in _MUST_BE_0 if record.get(key)]
    breaches = len(record.get("breaches", []))
    return ", ".join([*found, f"breaches {breaches}"] if breaches else found)


def show(console: Console, scenario: Scenario, record: dict[str, Any], outcome: Outcome) -> None:
    """Print the table, the notes and the breaches."""
    table = Table(
        title=f"{record['scenario']} on {record['cores']} cores, {record['connections']}"
        f" connections, appendfsync {record['appendfsync']}",
        title_justify="left",
        show_header=False,
    )
    table.add_column()
    table.add_column(justify="right", style="bold")
    table.add_column(style="dim")
    table.add_row(scenario.unit, f"{record['rate_per_s']:.0f}", f"bar on 2 cores: {scenario.bar}")
    for key in ("p50", "p95", "p99"):
        table.add_row(key, f"{record[f'{key}_ms']:.1f} ms", scenario.times)
    errors = record["errors"]
    table.add_row(
        "errors",
        str(errors),
        "answers and checks that should not be",
        style="red" if errors else None,
    )
    for answer, count in record.get("answers", {}).items():
        again = answer in COME_AGAIN
        table.add_row(
            f"answer {answer}",
            str(count),
            "the buyer is asked to come again" if again else "should not be",
            style=None if again else "red",
        )
    for key, value in (outcome.orders or {}).items():
        table.add_row(key, str(value), "must be 0", style="red" if value else None)
    rates, ratios = record["calibration"], record["ratios"]
    for key, name in (
        ("echo_per_s", "ASGI echo, requests/s"),
        ("send_per_s", "batch send, messages/s"),
        ("commits_per_s", "one-row commits/s"),
    ):
        style = "bold" if key == scenario.calibration else None
        table.add_row(name, f"{rates[key]:.0f}", f"calibration: ratio {ratios[key]}", style=style)
    console.print(table)
    for note in record["notes"]:
        console.print(note, soft_wrap=True)
    for breach in record.get("breaches", []):
        console.print(f"breach: {breach}", style="red", soft_wrap=True)
    if what := wrong(record):
        console.print(f"wrong: {record['scenario']}: {what}", style="red", soft_wrap=True)


def keep(record: dict[str, Any], target: Path | None) -> None:
    """Append the record to the scenario's history, and write it to `target`."""
    RESULTS.mkdir(exist_ok=True)
    history = RESULTS / f"{record['scenario']}.json"
    records = json.loads(history.read_text(encoding="utf-8")) if history.exists() else []
    history.write_text(json.dumps([*records, record], indent=1) + "\n", encoding="utf-8")
    if target is not None:
        target.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")

"""`bin/bench SCENARIO`: measure one scenario on a fresh private stack, print and keep it."""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, Final, NoReturn

from rich.console import Console
from rich.table import Table

from bench.bench import Bench, Outcome, Wish
from bench.calibration import Calibration, calibrate
from bench.generator import GeneratorFailed
from bench.scenarios import SCENARIOS, Scenario
from devstack.errors import StackError
from seckill.demo.supervision import StartFailed

RESULTS: Final = Path(__file__).resolve().parent / "results"


def _parser() -> argparse.ArgumentParser:
    width = max(map(len, SCENARIOS))
    listed = "\n".join(f"  {name:<{width}}  {s.about}" for name, s in SCENARIOS.items())
    parser = argparse.ArgumentParser(
        prog="bin/bench",
        description="Measure one scenario on a stack of its own, fresh each time.",
        epilog=f"scenarios:\n{listed}\n\nThe load generator runs on the same machine.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenario", choices=SCENARIOS, metavar="SCENARIO")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there as well")
    parser.add_argument("--connections", type=int, default=0, metavar="N")
    parser.add_argument("--seconds", type=float, default=0.0, metavar="N")
    parser.add_argument(
        "--appendfsync",
        choices=("always", "everysec"),
        default="always",
        help="Redis: fsync before every answer (default) or once a second",
    )
    return parser


def main(argv: list[str]) -> int:
    """Run one scenario; return 0 when it could be measured and nothing was lost."""
    options = _parser().parse_args(argv)
    if options.connections < 0 or options.seconds < 0:
        sys.stderr.write("bin/bench: --connections and --seconds must be positive\n")
        return 2
    signal.signal(signal.SIGTERM, _terminated)
    console = Console(highlight=False)
    bench = Bench(
        console,
        Wish(
            scenario=options.scenario,
            connections=options.connections,
            seconds=options.seconds,
            appendfsync=options.appendfsync,
        ),
    )
    scenario = SCENARIOS[options.scenario]
    try:
        bench.say(f"{options.scenario}: {scenario.about}")
        bench.say("setting up a fresh private stack")
        bench.set_up()
        from bench.scenarios.run import run  # Django may be imported from here on

        outcome = run(bench)
        bench.rig.stop_processes()
        bench.say("calibrating: echo, batch send, one-row commits")
        calibration = calibrate(
            folder=bench.folder,
            environment=bench.rig.environment,
            connections=outcome.connections,
        )
    except (StackError, StartFailed, GeneratorFailed) as error:
        sys.stderr.write(f"bin/bench: {error}\n")
        return 3
    except KeyboardInterrupt:
        return 130
    finally:
        bench.tear_down()
    record = _record(options.scenario, scenario, bench.wish, outcome, calibration)
    _show(console, scenario, record, outcome)
    _keep(record, options.json)
    wrong = sum((outcome.orders or {}).values()) + len(record.get("breaches", []))
    return 1 if wrong else 0


def _record(
    name: str, scenario: Scenario, wish: Wish, outcome: Outcome, calibration: Calibration
) -> dict[str, Any]:
    rates = {
        "echo_per_s": calibration.echo_per_s,
        "send_per_s": calibration.send_per_s,
        "commits_per_s": calibration.commits_per_s,
    }
    ratios = {
        key: round(outcome.rate_per_s / rate, 3) if rate else 0.0 for key, rate in rates.items()
    }
    return {
        "scenario": name,
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
        "notes": outcome.notes,
    }


def _show(console: Console, scenario: Scenario, record: dict[str, Any], outcome: Outcome) -> None:
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
    table.add_row("errors", str(record["errors"]), "answers and checks that should not be")
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


def _keep(record: dict[str, Any], target: Path | None) -> None:
    """Append the record to the scenario's history, and write it to `target`."""
    RESULTS.mkdir(exist_ok=True)
    history = RESULTS / f"{record['scenario']}.json"
    records = json.loads(history.read_text(encoding="utf-8")) if history.exists() else []
    history.write_text(json.dumps([*records, record], indent=1) + "\n", encoding="utf-8")
    if target is not None:
        target.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def _terminated(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What seeds came to: appended as JSON lines, counted as a table of faults."""

import json
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table

from chaos.catalogue import BY_TARGET, FAULTS
from chaos.plan import Plan
from seckill.demo.supervision import CHECKOUT

if TYPE_CHECKING:
    from chaos.seed import Verdict

RUNS: Final = Path(__file__).resolve().parent / "results" / "seeds.jsonl"


def commit() -> str:
    """Return the commit of the checkout, "+" when files differ from it, "" outside git."""
    try:
        head = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--abbrev=10"],
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return ""
    return head.stdout.strip()


def as_record(plan: Plan, verdict: "Verdict", *, version: str) -> dict[str, Any]:
    """Return a seed's line."""
    return {
        "seed": verdict.seed,
        "at": datetime.now(tz=UTC).isoformat(timespec="seconds"),
        "commit": version,
        "faults": [
            {**asdict(one.fault), "struck": not one.note, "note": one.note}
            for one in verdict.faults
        ],
        "operators": verdict.operators,
        "buyers": len(plan.buyers),
        "dead": dict(Counter(dead.how for dead in plan.dead)),
        "accepted": verdict.accepted,
        "orders": verdict.orders,
        "rejected": verdict.rejected,
        "excused": verdict.excused,
        "codes": verdict.codes,
        "rest_s": round(verdict.rest_s, 1),
        "seconds": round(verdict.seconds, 1),
        "spent": {name: round(seconds, 1) for name, seconds in verdict.spent.items()},
        "breaches": verdict.breaches,
    }


def append(record: Mapping[str, Any], path: Path = RUNS) -> None:
    """Add a line to the record of all runs."""
    path.parent.mkdir(exist_ok=True)
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(record) + "\n")


def load(path: Path = RUNS) -> list[dict[str, Any]]:
    """Return all lines."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def name_of(fault: Mapping[str, Any]) -> str:
    """Return what a fault is counted as: its name, with its target where that says more."""
    name = str(fault["name"])
    return f"{name} {fault['target']}" if name in BY_TARGET else name


def fault_table(records: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Count, for each fault: in how many seeds it was drawn, struck, and was survived.

    Faults and targets that the catalogue does not know any more are left out.
    """
    table = {
        name_of({"name": name, "target": target}): {"drawn": 0, "struck": 0, "survived": 0}
        for name, spec in FAULTS.items()
        for target in spec.targets
    }
    for record in records:
        drawn = {name_of(fault) for fault in record["faults"]}
        struck = {name_of(fault) for fault in record["faults"] if fault["struck"]}
        for name in drawn & table.keys():
            table[name]["drawn"] += 1
            table[name]["struck"] += name in struck
            table[name]["survived"] += name in struck and not record["breaches"]
    return table


def gaps(table: Mapping[str, Mapping[str, int]]) -> dict[str, list[str]]:
    """Return what the seeds say nothing about: drawn and never struck, or never drawn."""
    return {
        "drawn, never struck": [n for n, c in table.items() if c["drawn"] and not c["struck"]],
        "never drawn": [n for n, c in table.items() if not c["drawn"]],
    }


def as_table(records: Iterable[Mapping[str, Any]]) -> Table:
    """Return the table of what was drawn, for a terminal."""
    table = Table(title="Faults", title_justify="left")
    for column in ("fault", "drawn", "struck", "survived"):
        table.add_column(column, justify="left" if column == "fault" else "right")
    for name, counts in fault_table(records).items():
        if counts["drawn"]:
            bad = counts["struck"] != counts["survived"]
            table.add_row(name, *map(str, counts.values()), style="red" if bad else None)
    return table

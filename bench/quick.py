"""`bin/bench --quick`: short runs, their ratios beside the recorded ones, a warning when lower.

A ratio is a rate over the calibration of its own run, so that another machine, or the same one
on another day, can be compared at all. Short runs are compared with short runs only.
"""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.record import RESULTS, wrong
from bench.runs import ROOT, measure, tell_wrong

RECORDED: Final = RESULTS / "recorded.json"
TOLERANCE: Final = 0.25  # two equal runs differ by a fifth on a busy machine
SHORT: Final[dict[str, tuple[str, ...]]] = {
    "accept": ("--seconds", "4"),
    "sold-out": ("--seconds", "4"),
    "drain": ("--orders", "8000", "--warm-up", "4000"),
    "sale": ("--orders", "5000", "--warm-up", "4000"),
}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One scenario beside its record."""

    scenario: str
    ratio: float
    recorded: float | None
    comparable: bool  # recorded on as many cores, over the same calibration
    wrong: str = ""  # what was; its ratio says nothing then

    @property
    def regressed(self) -> bool:
        """Whether it is lower than chance explains."""
        return (
            self.comparable
            and self.recorded is not None
            and self.ratio < self.recorded * (1 - TOLERANCE)
        )

    @property
    def text(self) -> str:
        """What to say of it."""
        if self.wrong:
            return f"WRONG: {self.wrong}"
        if self.recorded is None:
            return "not recorded yet: --quick --record"
        if not self.comparable:
            return "recorded on another kind of machine"
        change = self.ratio / self.recorded - 1 if self.recorded else 0.0
        return f"{change:+.0%}" + (": REGRESSION?" if self.regressed else "")


def judge(record: dict[str, Any], recorded: dict[str, Any]) -> Verdict:
    """Compare one run with what is recorded of all scenarios."""
    name = record["scenario"]
    old = recorded.get(name)
    return Verdict(
        scenario=name,
        ratio=record["ratio"],
        recorded=old["ratio"] if old else None,
        comparable=old is not None
        and all(old[key] == record[key] for key in ("cores", "ratio_to", "appendfsync")),
        wrong=wrong(record),
    )


def run(console: Console, *, scenario: str | None, keep: bool) -> int:
    """Run the short scenarios (or one); return 1 when one has become slower or is wrong."""
    recorded = read(RECORDED)
    names = [scenario] if scenario else list(SHORT)
    records = [measure(ROOT, name, SHORT[name]) for name in names]
    verdicts = [judge(record, recorded) for record in records]
    table = Table(title=f"bin/bench --quick on {os.cpu_count()} cores", title_justify="left")
    for heading in ("scenario", "rate", "ratio", "recorded", ""):
        table.add_column(heading)
    for record, verdict in zip(records, verdicts, strict=True):
        table.add_row(
            verdict.scenario,
            f"{record['rate_per_s']:.0f} {record['unit']}",
            f"{verdict.ratio} of {record['ratio_to']}",
            "-" if verdict.recorded is None else str(verdict.recorded),
            verdict.text,
            style="red" if verdict.regressed or verdict.wrong else None,
        )
    console.print(table)
    status = tell_wrong(console, {record["scenario"]: record for record in records})
    if keep:
        if status:
            console.print("not recorded: nothing that is fast and wrong counts", style="red")
        else:
            write(RECORDED, recorded | {record["scenario"]: _short(record) for record in records})
            console.print(f"recorded in {RECORDED.relative_to(ROOT)}")
        return status
    slower = [verdict.scenario for verdict in verdicts if verdict.regressed]
    if slower:
        console.print(
            f"warning: {', '.join(slower)}: more than {TOLERANCE:.0%} below the record. Run it"
            " again on a quiet machine, then find the commit: bin/bench SCENARIO --against COMMIT",
            style="red",
        )
        status = 1
    return status


def read(path: Path) -> dict[str, Any]:
    """Return what is recorded, by scenario; nothing without the file."""
    return dict(json.loads(path.read_bytes())) if path.exists() else {}


def write(path: Path, recorded: dict[str, Any]) -> None:
    """Replace the file."""
    path.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _short(record: dict[str, Any]) -> dict[str, Any]:
    kept = ("ratio", "ratio_to", "rate_per_s", "unit", "cores", "appendfsync", "calibration")
    return {key: record[key] for key in kept} | {"at": time.strftime("%Y-%m-%d", time.gmtime())}

"""Runs of `bin/bench` as processes of their own: each has a fresh stack and a fresh Django."""

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

ROOT: Final = Path(__file__).resolve().parent.parent
_BREACH: Final = 1


class RunFailed(RuntimeError):
    """A run ended without a result."""


def measure(checkout: Path, scenario: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Run one scenario of a checkout to its end and return its record.

    Its output goes where ours goes. On an interrupt it is asked to end and waited for.

    Raises:
        RunFailed: it could not be measured, or was wrong: lost, oversold, duplicates, breaches.
    """
    environment = dict(os.environ)
    if checkout != ROOT:
        environment.pop("SECKILL_RUN_DIR", None)  # the other commit's stack lies in its own folder
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        target = Path(folder) / "record.json"
        process = subprocess.Popen(
            [str(checkout / "bin" / "bench"), scenario, *arguments, "--json", str(target)],
            cwd=checkout,
            env=environment,
        )
        try:
            status = process.wait()
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
            raise
        if status == _BREACH:
            raise RunFailed(f"{scenario} is wrong: nothing that is fast and wrong counts")
        if status != 0 or not target.exists():
            raise RunFailed(f"{scenario} ended with status {status}")
        record: dict[str, Any] = json.loads(target.read_bytes())
        return record


def one_after_the_other(
    console: Console, scenario: str, each: Sequence[Sequence[str]], target: Path | None
) -> int:
    """Run a scenario with several arguments, print one table, write all records to `target`."""
    records = [measure(ROOT, scenario, arguments) for arguments in each]
    table = Table(title=f"{scenario} by connections", title_justify="left")
    for heading in ("connections", records[0]["unit"], "p50", "p99", "errors", "ratio"):
        table.add_column(heading, justify="right")
    for one in records:
        table.add_row(
            str(one["connections"]),
            f"{one['rate_per_s']:.0f}",
            f"{one['p50_ms']:.1f} ms",
            f"{one['p99_ms']:.1f} ms",
            str(one["errors"]),
            f"{one['ratio']} of {one['ratio_to']}",
        )
    console.print(table)
    if target is not None:
        target.write_text(json.dumps(records, indent=2) + "\n", encoding="utf-8")
    return 0

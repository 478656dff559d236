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

from bench.record import wrong

ROOT: Final = Path(__file__).resolve().parent.parent
_WRONG: Final = 1  # measured, and to be told with what was wrong


class RunFailed(RuntimeError):
    """A run ended without a result."""


def measure(checkout: Path, scenario: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Run one scenario of a checkout to its end and return its record, also of a wrong run.

    Its output goes where ours goes. On an interrupt it is asked to end and waited for.

    Raises:
        RunFailed: it could not be measured.
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
        if status not in (0, _WRONG) or not target.exists():
            raise RunFailed(f"{scenario} ended with status {status}")
        record: dict[str, Any] = json.loads(target.read_bytes())
        return record


def tell_wrong(console: Console, records: dict[str, dict[str, Any]]) -> int:
    """Say which of the named runs were wrong; return the exit status, 1 when there is one."""
    found = {name: what for name, record in records.items() if (what := wrong(record))}
    for name, what in found.items():
        console.print(f"wrong: {name}: {what}", style="red", soft_wrap=True)
    return _WRONG if found else 0


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
    named = {f"{scenario}, {one['connections']} connections": one for one in records}
    return tell_wrong(console, named)

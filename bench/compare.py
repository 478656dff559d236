"""Paired mode: this checkout (A) and another commit (B) in turns, and the median of the ratios.

Machines change by the hour, so only neighbours are compared: A B, then B A, and so on. Both are
measured by the bench of this checkout, which is laid over the other commit's own.
"""

import json
import shutil
import subprocess
from pathlib import Path
from statistics import median
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.runs import ROOT, RunFailed, measure, tell_wrong

_FOLDER: Final = ROOT / ".run" / "bench-against"
_REQUIREMENTS: Final = ("requirements.txt", "devstack/requirements.txt")


def turns(pairs: int) -> list[str]:
    """Return the order of the runs: A B, B A, A B, …: a drift hits both alike."""
    return [side for pair in range(pairs) for side in ("AB" if pair % 2 == 0 else "BA")]


def ratios(records: list[tuple[str, dict[str, Any]]]) -> list[float]:
    """Return A's rate over B's, of each pair of neighbours."""
    found = []
    for first, second in zip(records[::2], records[1::2], strict=True):
        rates = {side: float(record["rate_per_s"]) for side, record in (first, second)}
        if not rates["B"]:
            raise RunFailed("the other commit did nothing: no ratio")
        found.append(round(rates["A"] / rates["B"], 3))
    return found


def checkout_of(commit: str) -> Path:
    """Return a checkout of the commit with our bench in it; made once for each commit.

    Raises:
        RunFailed: there is no such commit.
    """
    name = _git(ROOT, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    if not name:
        raise RunFailed(f"no commit {commit}")
    folder = _FOLDER / name[:12]
    if not (folder / ".git").exists():
        folder.mkdir(parents=True, exist_ok=True)
        _git(ROOT, "clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(folder))
    _git(folder, "checkout", "--quiet", "--force", "--detach", name)
    shutil.rmtree(folder / "bench")
    ignored = shutil.ignore_patterns("results", "__pycache__")
    shutil.copytree(ROOT / "bench", folder / "bench", ignore=ignored)
    shutil.copy2(ROOT / "bin" / "bench", folder / "bin" / "bench")
    same = all((folder / file).read_text() == (ROOT / file).read_text() for file in _REQUIREMENTS)
    if same and not (folder / ".venv").exists():
        (folder / ".venv").symlink_to(ROOT / ".venv")  # otherwise its start makes one of its own
    return folder


def run(
    console: Console,
    *,
    scenario: str,
    arguments: list[str],
    commit: str,
    pairs: int,
    target: Path | None,
) -> int:
    """Measure all pairs, print each ratio and the median."""
    places = {"A": ROOT, "B": checkout_of(commit)}
    records = []
    for place, side in enumerate(turns(pairs)):
        console.print(f"pair {place // 2 + 1} of {pairs}: {side}")
        records.append((side, measure(places[side], scenario, arguments)))
    found = ratios(records)
    table = Table(title=f"{scenario}: this checkout (A) over {commit} (B)", title_justify="left")
    for heading in ("pair", "A", "B", "A / B"):
        table.add_column(heading, justify="right")
    for pair, ratio in enumerate(found):
        rates = {side: record["rate_per_s"] for side, record in records[2 * pair : 2 * pair + 2]}
        table.add_row(str(pair + 1), f"{rates['A']:.0f}", f"{rates['B']:.0f}", f"{ratio}")
    console.print(table)
    console.print(
        f"median {median(found)}, from {min(found)} to {max(found)}, in {records[0][1]['unit']}"
    )
    if target is not None:
        document = {
            "scenario": scenario,
            "against": commit,
            "arguments": arguments,
            "ratio": median(found),
            "ratios": found,
            "runs": [{"side": side, **record} for side, record in records],
        }
        target.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return tell_wrong(
        console,
        {f"{side} of pair {n // 2 + 1}": record for n, (side, record) in enumerate(records)},
    )


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *words], capture_output=True, text=True, check=False
    )
    if done.returncode and words[0] != "rev-parse":
        raise RunFailed(f"git {words[0]}: {done.stderr.strip()}")
    return done.stdout.strip()

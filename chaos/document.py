"""Writes the table of results into docs/reliability.md from the recorded seeds."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from chaos.catalogue import FAULTS, NOT_TESTED
from chaos.results import fault_table, gaps, load
from seckill.demo.supervision import CHECKOUT

PAGE: Final = CHECKOUT / "docs" / "reliability.md"
BEGIN, END = "<!-- chaos: begin -->", "<!-- chaos: end -->"


def write_table(page: Path = PAGE) -> None:
    """Replace what stands between the marks."""
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    page.write_text(f"{before}{BEGIN}\n{as_markdown(load())}{END}{after}", encoding="utf-8")


def as_markdown(records: Iterable[Mapping[str, Any]]) -> str:
    """Return the numbers, the table of faults, and what is not tested."""
    records = list(records)
    seeds = {record["seed"] for record in records}
    broken = sorted({record["seed"] for record in records if record["breaches"]})
    lines = [
        f"{len(records)} runs of {len(seeds)} different seeds are recorded"
        f" (`chaos/results/seeds.jsonl`): {sum(r['accepted'] for r in records)} accepted buyers,"
        f" {sum(r['orders'] for r in records)} orders,"
        f" {sum(bool(r['breaches']) for r in records)} runs with a breach"
        + (f" (seeds {', '.join(map(str, broken))})." if broken else "."),
        "",
        "| fault | where | what happens | seeds | struck | survived |",
        "|---|---|---|---|---|---|",
    ]
    table = fault_table(records)
    for key, counts in table.items():
        name, _, target = key.partition(" ")
        lines.append(
            f"| {name} | {target} | {FAULTS[name].about} | {counts['drawn']}"
            f" | {counts['struck']} | {counts['survived']} |"
        )
    for what, names in gaps(table).items():
        lines += ["", f"{what.capitalize()}: {', '.join(names) or 'nothing'}."]
    lines += ["", "Not tested:", ""]
    lines += [f"- {what}: {why}." for what, why in NOT_TESTED.items()]
    return "\n".join(lines) + "\n"

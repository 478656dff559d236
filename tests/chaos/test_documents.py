"""docs/reliability.md and docs/requirements.md name proofs: every one of them must exist."""

import re
from pathlib import Path
from typing import Final

import pytest

from chaos.catalogue import FAULTS, NOT_TESTED
from chaos.faults.inject import INJECTORS

ROOT: Final = Path(__file__).resolve().parents[2]
RELIABILITY: Final = ROOT / "docs" / "reliability.md"
REQUIREMENTS: Final = ROOT / "docs" / "requirements.md"
_PROOF: Final = re.compile(
    r"`((?:tests|docs|dlq_admin|bench|deploy|devstack|bin)/[^`\s:]+)(?:::(\w+))?`"
)
# Rows of the sources that the first two phases must show; the others are documents or examples.
_ROWS: Final = 230


@pytest.mark.parametrize("page", [RELIABILITY, REQUIREMENTS])
def test_everything_is_named_and_there(page: Path) -> None:
    missing = []
    for path, test in _PROOF.findall(page.read_text(encoding="utf-8")):
        file = ROOT / path
        if not file.exists():
            missing.append(path)
        elif test and not re.search(rf"def {test}\b", file.read_text(encoding="utf-8")):
            missing.append(f"{path}::{test}")
    assert missing == []


def test_every_row_has_a_proof_or_says_what_is_missing() -> None:
    lines = [
        line for line in REQUIREMENTS.read_text().splitlines() if re.match(r"\| R\d{3} ", line)
    ]
    assert len({line[2:6] for line in lines}) == len(lines) == _ROWS
    bare = [line[2:6] for line in lines if not _PROOF.search(line) and "not built" not in line]
    assert bare == []


def test_every_drill_and_fault_of_the_sources_has_its_row() -> None:
    text = RELIABILITY.read_text()
    rows = set(re.findall(r"^\| ([DF]\d{2}) ", text, re.MULTILINE))
    wanted = {f"D{n:02}" for n in range(1, 49)} | {f"F{n:02}" for n in range(1, 13)}
    assert rows == wanted


def test_the_page_lists_every_fault_and_what_is_not_tested() -> None:
    text = RELIABILITY.read_text()
    assert [name for name in FAULTS if f"| {name} |" not in text] == []
    assert [what for what in NOT_TESTED if what not in text] == []
    assert set(INJECTORS) == set(FAULTS)

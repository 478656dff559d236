"""Paired mode: runs in turns, ratios of neighbours only, our bench over the other commit's."""

import subprocess
from pathlib import Path

import pytest

from bench import compare
from bench.runs import ROOT, RunFailed


def test_the_order_alternates():
    assert compare.turns(3) == ["A", "B", "B", "A", "A", "B"]


def test_a_ratio_is_that_of_neighbours_whoever_came_first():
    runs = [("A", 200.0), ("B", 100.0), ("B", 50.0), ("A", 75.0)]
    assert compare.ratios([(side, {"rate_per_s": rate}) for side, rate in runs]) == [2.0, 1.5]


def test_no_ratio_to_nothing():
    with pytest.raises(RunFailed, match="did nothing"):
        compare.ratios([("A", {"rate_per_s": 1}), ("B", {"rate_per_s": 0})])


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    done = subprocess.run(
        ["git", "-C", str(folder), *who, *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path, monkeypatch):
    root = tmp_path / "project"
    for file, text in {
        "bench/old.py": "old",
        "bin/bench": "old",
        "product.py": "old",
        "requirements.txt": "same",
        "devstack/requirements.txt": "same",
    }.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text)
    git(tmp_path, "init", "-q", str(root))
    git(root, "add", ".")
    git(root, "commit", "-qm", "old")
    (root / ".venv").mkdir()
    (root / "product.py").write_text("new")
    (root / "bench/old.py").unlink()
    (root / "bench/new.py").write_text("new")
    (root / "bin/bench").write_text("new")
    monkeypatch.setattr(compare, "ROOT", root)
    monkeypatch.setattr(compare, "_FOLDER", root / ".run" / "against")
    return root


def test_the_other_commit_has_its_own_product_and_our_bench(project):
    folder = compare.checkout_of("HEAD")
    assert (folder / "product.py").read_text() == "old"
    assert [file.name for file in (folder / "bench").iterdir()] == ["new.py"]
    assert (folder / "bin/bench").read_text() == "new"
    assert (folder / ".venv").resolve() == project / ".venv"
    assert compare.checkout_of("HEAD") == folder  # again: what is there is brought up to date


def test_other_packages_are_not_shared(project):
    (project / "requirements.txt").write_text("another")
    assert not (compare.checkout_of("HEAD") / ".venv").exists()


def test_an_unknown_commit_is_named():
    with pytest.raises(RunFailed, match="no commit nonsense"):
        compare.checkout_of("nonsense")
    assert ROOT.is_dir()

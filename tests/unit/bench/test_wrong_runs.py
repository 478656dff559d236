"""A run that was wrong says so and ends with 1, and so does whoever started it."""

import io
import json
from types import SimpleNamespace

import pytest
from rich.console import Console

import bench.scenarios.run
from bench import __main__ as command
from bench import compare, record, runs
from bench.bench import Outcome
from bench.calibration import Calibration

RIGHT = {
    "scenario": "accept",
    "rate_per_s": 10.0,
    "unit": "accepted/s",
    "p50_ms": 1.0,
    "p99_ms": 1.0,
    "errors": 0,
    "ratio": 0.5,
    "ratio_to": "echo_per_s",
    "connections": 50,
}


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({}, ""),
        ({"lost": 0, "breaches": [], "answers": {"503 BUSY": 9}}, ""),
        ({"errors": 3}, "errors 3"),
        ({"lost": 1, "broken": 2, "oversold": 3, "duplicates": 4},
         "lost 1, broken 2, oversold 3, duplicates 4"),
        ({"errors": 1, "breaches": ["x", "y"]}, "errors 1, breaches 2"),
    ],
)  # fmt: skip
def test_what_makes_a_run_wrong(more, text):
    assert record.wrong(RIGHT | more) == text


@pytest.mark.parametrize(
    ("scenario", "errors", "answers", "status"),
    [
        ("accept", 0, {"503 RESULT_UNKNOWN": 5}, 0),
        ("accept", 2, {"404 NOT_FOUND": 2}, 1),
        ("sold-out", 7, {"409 SOLD_OUT to a holder": 7}, 1),
    ],
)
def test_a_scenario_ends_with_1_on_errors_and_shows_its_answers(
    scenario, errors, answers, status, monkeypatch
):
    rig = SimpleNamespace(stop_processes=lambda: None, environment={})
    stack = SimpleNamespace(
        say=lambda text: None, set_up=lambda: None, tear_down=lambda: None, rig=rig, folder=None
    )
    found = Outcome(
        rate_per_s=1.0, p50_ms=1.0, p95_ms=1.0, p99_ms=1.0, errors=errors, more={"answers": answers}
    )
    rates = Calibration(echo_per_s=1.0, send_per_s=1.0, commits_per_s=1.0)
    monkeypatch.setattr(command, "Bench", lambda console, wish: stack)
    monkeypatch.setattr(bench.scenarios.run, "run", lambda stack: found)
    monkeypatch.setattr(command, "calibrate", lambda **words: rates)
    monkeypatch.setattr(record, "keep", lambda made, target: None)
    said = io.StringIO()
    options = command._parser().parse_args([scenario])
    assert command._measure(Console(file=said, width=150), options) == status
    lines = said.getvalue().splitlines()
    for answer, count in answers.items():
        assert [line for line in lines if f"answer {answer}" in line and f" {count} " in line]
    wrong = [line for line in lines if line.startswith("wrong:")]
    assert wrong == ([f"wrong: {scenario}: errors {errors}"] if errors else [])


def checkout(folder, status: int, found: dict):
    """A checkout whose bench writes a record and ends."""
    (folder / "bin").mkdir()
    (folder / "record.json").write_text(json.dumps(found))
    script = folder / "bin" / "bench"
    script.write_text(f'#!/bin/sh\ncp record.json "$3"\nexit {status}\n')  # SCENARIO --json FILE
    script.chmod(0o755)
    return folder


def test_a_wrong_run_of_its_own_still_has_a_record(tmp_path):
    found = RIGHT | {"errors": 3}
    assert runs.measure(checkout(tmp_path, 1, found), "accept", []) == found


def test_a_run_that_could_not_be_measured_has_none(tmp_path):
    with pytest.raises(runs.RunFailed, match="status 3"):
        runs.measure(checkout(tmp_path, 3, RIGHT), "accept", [])


@pytest.mark.parametrize(("errors", "status"), [(0, 0), (4, 1)])
def test_several_runs_end_as_their_worst(errors, status, monkeypatch):
    each = iter([RIGHT | {"errors": errors}, RIGHT | {"connections": 200}])
    monkeypatch.setattr(runs, "measure", lambda *args: next(each))
    said = io.StringIO()
    console = Console(file=said, width=150)
    assert runs.one_after_the_other(console, "accept", [["a"], ["b"]], None) == status
    assert ("wrong: accept, 50 connections: errors 4" in said.getvalue()) == bool(errors)


def test_a_comparison_names_the_side_that_was_wrong(tmp_path, monkeypatch):
    each = iter([RIGHT, RIGHT | {"lost": 1}])
    monkeypatch.setattr(compare, "measure", lambda *args: next(each))
    monkeypatch.setattr(compare, "checkout_of", lambda commit: tmp_path)
    said = io.StringIO()
    status = compare.run(
        Console(file=said, width=150),
        scenario="accept",
        arguments=[],
        commit="HEAD",
        pairs=1,
        target=None,
    )
    assert status == 1
    assert "wrong: B of pair 1: lost 1" in said.getvalue()

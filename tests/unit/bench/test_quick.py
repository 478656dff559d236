"""Quick mode: a ratio beside its record; what cannot be compared is no regression."""

import io

import pytest
from rich.console import Console

from bench import quick

RECORD = {
    "scenario": "accept",
    "rate_per_s": 5_000.0,
    "unit": "accepted/s",
    "ratio": 0.2,
    "ratio_to": "echo_per_s",
    "errors": 0,
    "cores": 2,
    "appendfsync": "always",
    "calibration": {"echo_per_s": 25_000.0},
}


@pytest.mark.parametrize(
    ("change", "regressed", "text"),
    [
        ({}, False, "+0%"),
        ({"ratio": 0.16}, False, "-20%"),
        ({"ratio": 0.14}, True, "-30%: REGRESSION?"),
        ({"ratio": 0.3}, False, "+50%"),
        ({"ratio": 0.1, "cores": 8}, False, "recorded on another kind of machine"),
        ({"ratio": 0.1, "ratio_to": "send_per_s"}, False, "recorded on another kind of machine"),
    ],
)
def test_a_ratio_is_judged_by_its_record(change, regressed, text):
    verdict = quick.judge(RECORD | change, {"accept": RECORD})
    assert (verdict.regressed, verdict.text) == (regressed, text)


def test_what_was_never_recorded_is_no_regression():
    verdict = quick.judge(RECORD, {})
    assert (verdict.regressed, verdict.text) == (False, "not recorded yet: --quick --record")


@pytest.fixture
def play(tmp_path, monkeypatch):
    monkeypatch.setattr(quick, "ROOT", tmp_path)
    monkeypatch.setattr(quick, "RECORDED", tmp_path / "recorded.json")
    said = io.StringIO()

    def run(ratio: float, *, keep: bool = False, errors: int = 0) -> tuple[int, str]:
        found = RECORD | {"ratio": ratio, "errors": errors}
        monkeypatch.setattr(quick, "measure", lambda root, name, words: found)
        status = quick.run(Console(file=said, width=200), scenario="accept", keep=keep)
        return status, said.getvalue()

    return run


def test_a_run_is_recorded_and_a_slower_one_warns(play):
    assert play(0.2, keep=True)[0] == 0
    assert play(0.19)[0] == 0
    status, said = play(0.1)
    assert status == 1
    assert "warning: accept" in said


def test_a_fast_run_with_errors_fails_and_is_named(play):
    assert play(0.2, keep=True)[0] == 0
    status, said = play(0.3, errors=3)
    assert status == 1
    assert "wrong: accept: errors 3" in said


def test_a_wrong_run_is_not_recorded(play):
    assert play(0.2, keep=True)[0] == 0
    assert play(0.9, keep=True, errors=1)[0] == 1
    assert quick.read(quick.RECORDED)["accept"]["ratio"] == 0.2


def test_the_record_in_the_repository_is_of_the_scenarios_that_quick_runs():
    recorded = quick.read(quick.RECORDED)
    assert set(recorded) == set(quick.SHORT)
    assert all(quick.judge({"scenario": n, **r}, recorded).comparable for n, r in recorded.items())

"""Only right answers are rated, and every other one is told."""

from types import SimpleNamespace

import pytest

from bench import backlog
from bench.answers import ACCEPTED, SOLD_OUT, sort_answers
from bench.commits import Commits
from bench.loadgen.histogram import Histogram
from bench.scenarios import accept as hot_path
from bench.scenarios import drain as draining
from bench.scenarios import sale as crowds

SALE = SimpleNamespace(activity_id=1, validity_s=300, path="/p", more_skus=[])


def result(codes: dict[str, int], **more: object) -> dict:
    """What the load generator tells of a second."""
    return {
        "codes": codes,
        "errors": {},
        "unanswered": 0,
        "holder_codes": {},
        "seconds": 2.0,
        "rate_per_s": sum(codes.values()) / 2,
        "accepted": codes.get("202", 0),
        "queued": codes.get("202", 0),
        "pending": 0,
        "p50_ms": 1.0,
        "p95_ms": 1.0,
        "p99_ms": 1.0,
        "histogram": {},
        "series": {},
        "cpu_s": 0.1,
        "first_sent_epoch_s": 100.0,
    } | more


def bench(scenario: str) -> SimpleNamespace:
    """A bench that starts nothing."""
    wish = SimpleNamespace(scenario=scenario, seconds=0.0, orders=0)
    supervisor = SimpleNamespace(stop_program=lambda name: None)
    names = ["web", "orders", "core", "scanner"]
    return SimpleNamespace(
        connections=0,
        wish=wish,
        rig=SimpleNamespace(port=1, environment={}, names=names, supervisor=supervisor),
        start=lambda *names: None,
        start_later=lambda *names: None,
        say=lambda text: None,
    )


def test_answers_are_asked_again_wrong_or_none():
    found = sort_answers(
        result(
            {
                "202": 5,
                "409 SOLD_OUT": 4,
                "429 THROTTLED": 1,
                "503 RESULT_UNKNOWN": 3,
                "503": 1,
                "503 TEAPOT": 1,
                "404 NOT_FOUND": 2,
            },
            errors={"closed": 2},
            unanswered=1,
        ),
        right=(ACCEPTED, SOLD_OUT),
    )
    assert found.again == {"429 THROTTLED": 1, "503 RESULT_UNKNOWN": 3}
    assert found.wrong == {"503": 1, "503 TEAPOT": 1, "404 NOT_FOUND": 2}
    assert found.errors == 4 + 2 + 1
    assert found.shown == found.again | found.wrong | {"none: closed": 2, "none at the end": 1}


@pytest.mark.parametrize(
    "code",
    ["BUSY", "OVERLOADED", "GATE_LOST", "SEND_FAILED", "FAIL_CLOSED", "RESULT_UNKNOWN"],
)
def test_what_the_api_page_tells_clients_to_repeat_is_no_error(code):
    assert sort_answers(result({f"503 {code}": 1})).errors == 0


@pytest.fixture
def play(monkeypatch):
    """Run `accept` or `sold-out` on what a generator is said to have seen."""

    def run(scenario, seen):
        for name in ("make_sale", "open_sale", "_hand_out"):
            monkeypatch.setattr(hot_path, name, lambda *args, **words: SALE)
        monkeypatch.setattr(hot_path, "_run", lambda bench, plan: seen)
        return scenario(bench("accept"))

    return run


def test_sold_out_rates_right_refusals_and_served_holders_only(play):
    holders = {"202": 5, "409 ALREADY_RESERVED": 15, "409 SOLD_OUT": 10, "503 BUSY": 2}
    others = {"202": 1, "409 ALREADY_RESERVED": 3, "409 SOLD_OUT": 1000, "503 BUSY": 7}
    codes = {code: others[code] + holders[code] for code in others} | {"500 INTERNAL": 4}
    found = play(hot_path.sold_out, result(codes, holder_codes=holders, errors={"closed": 6}))
    assert found.rate_per_s == (1000 + 20) / 2
    assert found.errors == 12 + (1 + 3 + 7 + 4) + 6
    assert (found.more["holders_asked"], found.more["holders_served"]) == (32, 20)
    assert found.more["answers"] == {
        "202 to a stranger": 1,
        "409 ALREADY_RESERVED to a stranger": 3,
        "503 BUSY to a stranger": 7,
        "500 INTERNAL to a stranger": 4,
        "409 SOLD_OUT to a holder": 10,
        "503 BUSY to a holder": 2,
        "none: closed": 6,
    }


def test_units_that_strangers_hold_are_no_holders_served(play):
    # The first run that was ever kept: nothing was handed out, strangers bought all of it.
    codes = {"202": 102, "409 SOLD_OUT": 27220}
    found = play(hot_path.sold_out, result(codes, holder_codes={"409 SOLD_OUT": 273}))
    assert (found.more["holders_asked"], found.more["holders_served"]) == (273, 0)
    assert found.errors == 273 + 102


def test_a_right_sold_out_has_no_errors(play):
    codes = {"409 SOLD_OUT": 990, "409 ALREADY_RESERVED": 10}
    found = play(hot_path.sold_out, result(codes, holder_codes={"409 ALREADY_RESERVED": 10}))
    assert (found.rate_per_s, found.errors, found.more["answers"]) == (500.0, 0, {})


def test_in_accept_nobody_may_be_refused_and_who_is_asked_again_is_told(play):
    codes = {"202": 90, "503 RESULT_UNKNOWN": 7, "409 SOLD_OUT": 2, "200": 1}
    found = play(hot_path.accept, result(codes, queued=80, unanswered=3))
    assert (found.rate_per_s, found.errors, found.more["late"]) == (40.0, 3, 3)
    assert found.more["answers"] == {"503 RESULT_UNKNOWN": 7, "409 SOLD_OUT": 2, "200": 1}


@pytest.mark.parametrize(("scenario", "errors"), [("sale", 5), ("burst", 7)])
def test_a_crowd_is_told_every_answer_that_was_not_expected(scenario, errors, monkeypatch):
    codes = {"202": 10, "409 SOLD_OUT": 2, "503 RESULT_UNKNOWN": 3, "404 NOT_FOUND": 4}
    commits = Commits(committed_s=[101.0] * 10, lateness=Histogram(), exact=True)
    monkeypatch.setattr(crowds, "audit", lambda *args: ({"lost": 0}, ["a breach"]))
    found = crowds._outcome(bench(scenario), SALE, result(codes), ["r"] * 10, commits, 50)
    assert found.errors == errors
    refused = {} if scenario == "sale" else {"409 SOLD_OUT": 2}
    assert found.more["answers"] == {"503 RESULT_UNKNOWN": 3, "404 NOT_FOUND": 4} | refused


def test_drain_counts_the_answers_that_filled_its_backlog(monkeypatch):
    codes = {"202": 10, "503 BUSY": 3, "404 NOT_FOUND": 4}
    crowd = SimpleNamespace(accepted=["r"] * 10, result=result(codes))
    for name in ("make_sale", "open_sale", "_wait_until_sent"):
        monkeypatch.setattr(backlog, name, lambda *args, **words: SALE)
    monkeypatch.setattr(backlog, "let_in", lambda *args, **words: crowd)
    commits = Commits(committed_s=[101.0] * 10, lateness=Histogram(), exact=True)
    for name, what in (
        ("warm_up", None),
        ("wait_for_orders", None),
        ("read_commits", commits),
        ("audit", ({"lost": 0}, [])),
    ):
        monkeypatch.setattr(draining, name, lambda *args, what=what, **words: what)
    found = draining.drain(bench("drain"))
    assert found.errors == 4
    assert found.more["answers"] == {"503 BUSY": 3, "404 NOT_FOUND": 4}

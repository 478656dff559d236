"""One batch of what a provider still has to answer: no row makes its neighbours wait."""

from dataclasses import dataclass

import pytest
from django.db import OperationalError

from orders.payments import providers
from orders.payments.port import Outcome, ProviderUnavailable
from orders.scan import unanswered


@dataclass(frozen=True)
class Row:
    name: str
    provider: str = "sandbox"


@pytest.fixture
def asked(monkeypatch):
    """The names of the rows that were driven, in turn."""

    def named(name: str) -> str:
        if name == "gone":
            raise ProviderUnavailable(name)
        return name

    monkeypatch.setattr(providers, "named", named)
    return []


def play(asked, due, answers):
    put_off = {}

    def drive(row, provider):
        asked.append(row.name)
        answer = answers.get(row.name, Outcome.OK)
        if isinstance(answer, Exception):
            raise answer
        return answer

    done = unanswered.drive_due(
        lambda limit: due, drive, lambda row, why: put_off.update({row.name: why})
    )
    return done, put_off


def test_a_row_that_cannot_be_driven_is_put_off_and_the_next_is_asked_about(asked):
    due = [Row("a", "gone"), Row("b"), Row("c")]
    done, put_off = play(asked, due, {"b": ValueError("65 characters")})
    assert (done, asked) == (3, ["b", "c"])
    assert put_off == {"a": "PROVIDER_UNAVAILABLE", "b": "ValueError"}


def test_a_database_that_is_away_ends_the_round(asked):
    with pytest.raises(OperationalError):
        play(asked, [Row("a"), Row("b")], {"a": OperationalError("gone")})
    assert asked == ["a"]


def test_a_provider_that_does_not_answer_is_left_alone_after_three(asked):
    due = [Row(name) for name in "abcde"]
    assert play(asked, due, dict.fromkeys("abcde", Outcome.UNKNOWN)) == (3, {})
    assert asked == ["a", "b", "c"]


def test_a_round_begins_nothing_whose_lease_has_ended(asked, monkeypatch):
    clock = iter([0.0, 9.0, 10.5, 30.0])
    monkeypatch.setattr(unanswered.time, "monotonic", lambda: next(clock))
    assert play(asked, [Row(name) for name in "abc"], {}) == (2, {})

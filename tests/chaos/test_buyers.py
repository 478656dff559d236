"""What a buyer of the fault search says of an answer to a key that he has used before."""

from collections.abc import Callable
from typing import Any

import pytest

from chaos.buyers import Crowd
from chaos.plan import BuyerPlan

MINE = "rsv_01M8NFNFWS5RRD1AMRCCV0TTTS"
Ask = Callable[[Crowd], None]


def _buyer() -> BuyerPlan:
    return BuyerPlan(
        user="ann", at_s=0, sku=0, quantity=1, second="", afterwards="nothing", wait_s=0
    )


def _same_again(crowd: Crowd) -> None:
    crowd._same_again(_buyer(), "k", MINE)


def _conflict(crowd: Crowd) -> None:
    crowd._conflict(_buyer(), "k", MINE)


def _told(
    monkeypatch: pytest.MonkeyPatch, ask: Ask, status: int, **body: Any
) -> tuple[list[tuple[str, int, str]], list[tuple[str, str]], list[str]]:
    crowd = Crowd(base_url="", secret="s", activity_id=1, sku_ids=(1,))
    monkeypatch.setattr(crowd, "_call", lambda *args, **more: (status, body))
    ask(crowd)
    told = crowd.told
    return [one[:3] for one in told.refused], told.renewed, told.broken_rules


@pytest.mark.parametrize(
    ("status", "code"),
    [
        *((409, "SOLD_OUT"), (409, "ALREADY_RESERVED"), (403, "CLOSED"), (403, "ENDED")),
        *((404, "NOT_FOUND"), (422, "LIMIT_EXCEEDED")),
    ],
)
@pytest.mark.parametrize("ask", [_same_again, _conflict])
def test_a_clear_refusal_of_a_used_key_is_noted(
    monkeypatch: pytest.MonkeyPatch, ask: Ask, status: int, code: str
) -> None:
    assert _told(monkeypatch, ask, status, code=code) == ([(MINE, status, code)], [], [])


@pytest.mark.parametrize("ask", [_same_again, _conflict])
@pytest.mark.parametrize("status", [0, 408, 429, 500, 503, 504])
def test_an_answer_that_is_not_clear_says_nothing(
    monkeypatch: pytest.MonkeyPatch, ask: Ask, status: int
) -> None:
    assert _told(monkeypatch, ask, status, code="WHATEVER") == ([], [], [])


def test_the_same_key_gets_its_reservation_or_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing: Any = ([], [], [])
    other = "rsv_01M8NFNFWS5RRD1AMRCCV0TTTX"
    assert _told(monkeypatch, _same_again, 202, reservation_id=MINE) == nothing
    assert _told(monkeypatch, _same_again, 409, code="RESERVATION_ENDED") == nothing
    assert _told(monkeypatch, _same_again, 202, reservation_id=other) == ([], [(MINE, other)], [])
    assert _told(monkeypatch, _same_again, 409, code="REQUEST_CONFLICT")[0] != []


def test_a_used_key_with_another_body_is_a_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _told(monkeypatch, _conflict, 409, code="REQUEST_CONFLICT") == ([], [], [])
    assert _told(monkeypatch, _conflict, 409, code="RESERVATION_ENDED")[0] != []
    assert _told(monkeypatch, _conflict, 202, reservation_id=MINE)[2] != []

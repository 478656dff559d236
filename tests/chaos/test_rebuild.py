"""After a loss the search rebuilds every sale whose loss is noted, however late that is."""

from types import SimpleNamespace
from typing import Any

import pytest

from chaos import rebuild


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuild, "_POLL_S", 0.0)
    monkeypatch.setattr(rebuild, "_QUIET_S", 0.05)


def _scene(activity_id: int) -> Any:
    return SimpleNamespace(activity_id=activity_id, redis_returned_ms=1)


def _noted(monkeypatch: pytest.MonkeyPatch, *looks: list[int]) -> list[int]:
    """Let each look find these sales, the later ones none; return what is rebuilt."""
    left, rebuilt = list(looks), list[int]()
    monkeypatch.setattr(rebuild, "_lost_sales", lambda: left.pop(0) if left else [])

    def one(scene: Any, activity_id: int) -> str:
        rebuilt.append(activity_id)
        return ""

    monkeypatch.setattr(rebuild, "_rebuild_one", one)
    return rebuilt


def test_a_sale_whose_loss_is_noted_after_the_others_were_rebuilt_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rebuilt = _noted(monkeypatch, [], [1], [], [2], [7], [], [3])

    assert rebuild.rebuild(_scene(7)) == []

    assert rebuilt == [1, 2, 7, 3]


def test_a_loss_of_this_sale_that_nobody_notes_is_a_breach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuild, "_LOSS_SEEN_S", 0.05)
    rebuilt = _noted(monkeypatch, [1])

    assert rebuild.rebuild(_scene(7)) == ["no loss noticed within 0 s"]

    assert rebuilt == [1]


def test_a_gate_that_cannot_be_made_anew_is_a_breach(monkeypatch: pytest.MonkeyPatch) -> None:
    _noted(monkeypatch, [7])
    monkeypatch.setattr(rebuild, "_rebuild_one", lambda scene, activity_id: "it waits")

    assert rebuild.rebuild(_scene(7)) == ["rebuild_gate 7: it waits"]

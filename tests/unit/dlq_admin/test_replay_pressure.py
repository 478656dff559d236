"""The governor's decision in the replay worker's terms."""

from dataclasses import replace
from typing import Any

import pytest

from seckill.governor import Level
from seckill.governor.view import stale_view, static_view
from seckill.replay_pressure import pressure_of


@pytest.mark.parametrize(
    ("level", "share"),
    [
        (Level.NORMAL, 1.0),
        (Level.RAMP, 0.5),
        (Level.THROTTLE, 0.25),
        (Level.HOLD, 0.1),
        (Level.FAIL_CLOSED, 0.0),
    ],
)
def test_buyers_go_first(level: Level, share: float) -> None:
    found = pressure_of(replace(static_view(), level=level, reasons=("LAG",)), lag_s=0.5)
    assert (found.share, found.lag_s) == (share, 0.5)
    assert found.reason == ("" if share == 1 else f"{level}: LAG")


def test_signals_become_shares_and_seconds(settings: Any) -> None:
    settings.SECKILL_SAFE_TRANSACTIONS = 8
    view = replace(static_view(), signals={"active": 6, "tx_p95_ms": 1500.0})
    found = pressure_of(view, lag_s=None)
    assert (found.database_share, found.tx_p95_s, found.lag_s) == (0.75, 1.5, None)


def test_a_stale_decision_throttles_and_says_nothing_of_the_database() -> None:
    view = replace(stale_view(), signals={"active": 99})
    found = pressure_of(view, lag_s=None)
    assert (found.share, found.database_share, found.tx_p95_s) == (0.25, None, None)

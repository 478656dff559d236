"""The decision: each row of the table, hysteresis, ramps, order of measures."""

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest

from messaging.selectors import GroupMember
from messaging.topology import (
    CG_AUDIT,
    CG_INVENTORY_COMPENSATE,
    CG_NOTIFY,
    CG_ORDER_CREATE,
    CG_ORDER_TIMEOUT,
    enabled_groups,
)
from seckill.governor.database_samples import StuckMeter
from seckill.governor.decide import decide
from seckill.governor.memory import Means, Memory
from seckill.governor.signals import Database, SaleSignals, Signals, judge_database
from seckill.governor.view import GovernorView, Level

MEANS = Means(
    groups=tuple((group.name, group.core) for group in enabled_groups()),
    order_group=CG_ORDER_CREATE,
    compensate_group=CG_INVENTORY_COMPENSATE,
    safe_transactions=240,
    workers=2,
    workers_max=14,
)
WELL = Signals(instances=12, drain_per_s=4_000, busy_per_s=4_000)
LAGS = replace(WELL, lag_s=1.2, backlog=4_800)


@dataclass
class Run:
    """A governor and its clock."""

    means: Means = MEANS
    now_s: float = 100.0
    memory: Memory = field(default_factory=Memory)
    view: GovernorView | None = None

    def see(self, signals: Signals, *, seconds: int = 1) -> GovernorView:
        for _ in range(seconds):
            self.now_s += 1.0
            self.view, self.memory = decide(
                signals, self.memory, means=self.means, now_s=self.now_s
            )
        assert self.view is not None
        return self.view


def names(view: GovernorView) -> list[str]:
    return [reason.split(":")[0] for reason in view.reasons]


def test_all_well_changes_nothing():
    run = Run()
    view = run.see(WELL, seconds=30)
    assert view.level is Level.NORMAL
    assert view.reasons == ("ALL_WELL",)
    assert view.entry_rate == 0
    assert view.pace(CG_ORDER_CREATE).workers == 2
    assert (view.max_open, view.max_pending, view.busy_activities) == (0, 0, frozenset())


# The table of the specification, a row each. "act" looks at the view 6 s after the signals began.
STALLED = replace(LAGS, database_age_s=4.0)
TABLE: list[tuple[str, dict[str, Any], Database, Level, str]] = [
    ("high, healthy", {"lag_s": 1.2}, Database.HEALTHY, Level.NORMAL, "more"),
    (
        "high, pool exhausted",
        {"lag_s": 1.2, "pool_wait_p95_ms": 101.0},
        Database.POOL_EXHAUSTED,
        Level.THROTTLE,
        "fewer",
    ),
    (
        "high, WAL saturated",
        {"lag_s": 1.2, "tx_p99_ms": 1_200.0, "wal_waits": 6, "active": 8},
        Database.WAL_SATURATED,
        Level.THROTTLE,
        "same",
    ),
    ("low, loaded", {"tx_p99_ms": 1_200.0}, Database.LOADED, Level.NORMAL, "fewer"),
    ("low, locks", {"lock_waits": 5, "active": 8}, Database.LOADED, Level.NORMAL, "fewer"),
    ("low, healthy", {}, Database.HEALTHY, Level.NORMAL, "same"),
]


@pytest.mark.parametrize(("row", "signals", "database", "level", "workers"), TABLE)
def test_table(row: str, signals: dict[str, Any], database: Database, level: Level, workers: str):
    # given: consumers at half of their budget
    run = Run(means=replace(MEANS, workers=7))
    run.see(WELL)
    seen = replace(WELL, **signals)

    # when
    view = run.see(seen, seconds=6)

    # then
    assert judge_database(seen) is database
    assert view.level is level, view.reasons
    now = view.pace(CG_ORDER_CREATE).workers
    assert {"more": now > 7, "fewer": now < 7, "same": now == 7}[workers], now


def test_consumers_grow_by_a_tenth_of_the_budget_every_5_s_and_stop_at_it():
    run = Run()
    run.see(WELL)
    workers = [run.see(LAGS, seconds=5).pace(CG_ORDER_CREATE).workers for _ in range(20)]
    # 24 loops in 12 processes; 168 are the budget: 16.8 more every 5 s
    assert workers[:3] == [3, 4, 6]
    assert all(0 <= later - earlier <= 2 for earlier, later in pairwise(workers))
    assert max(workers) == workers[-1] == 14
    assert run.memory.workers == 168


def test_no_growth_while_the_database_is_loaded():
    run = Run()
    run.see(WELL)
    view = run.see(replace(LAGS, tx_p99_ms=1_500.0), seconds=30)
    assert view.pace(CG_ORDER_CREATE).workers == 2


def test_lag_high_without_headroom_throttles_below_what_drains():
    run = Run(means=replace(MEANS, workers=14))
    view = run.see(LAGS, seconds=2)
    assert view.level is Level.THROTTLE
    assert names(view)[0] == "LAG_HIGH"
    assert view.entry_rate == pytest.approx(0.7 * 4_000)
    assert view.entry_burst == 0
    assert view.max_open == 12_000
    assert view.max_pending == 1_000


def test_critical_lag_throttles_harder_although_there_is_headroom():
    run = Run()
    view = run.see(replace(LAGS, lag_s=2.6), seconds=2)
    assert view.level is Level.THROTTLE
    assert view.entry_rate == pytest.approx(0.4 * 4_000)


def test_entry_is_bounded_before_anything_lags_once_the_capacity_is_known():
    run = Run(means=replace(MEANS, drain_per_s=4_000))
    view = run.see(WELL)
    assert (view.level, view.entry_rate) == (Level.NORMAL, 3_600)
    # the burst of a quarter of the SLO is worked off within it
    assert view.entry_burst == 4_000 * 0.75
    # and shrinks by what lags already
    assert run.see(replace(WELL, lag_s=0.4)).entry_burst == pytest.approx(4_000 * 0.35)


def test_operators_own_limit_is_never_exceeded():
    run = Run(means=replace(MEANS, drain_per_s=4_000, entry_rate=100.0))
    assert run.see(WELL).entry_rate == 100
    assert Run(means=replace(MEANS, entry_rate=100.0)).see(WELL).entry_rate == 100


def test_level_goes_up_at_once_and_down_only_after_calm():
    run = Run(means=replace(MEANS, workers=14))
    assert run.see(LAGS).level is Level.THROTTLE
    # between calm and high nothing changes, however long
    assert run.see(replace(LAGS, lag_s=0.7), seconds=60).level is Level.THROTTLE
    # below it, only after 3 s …
    assert run.see(replace(LAGS, lag_s=0.3), seconds=3).level is Level.THROTTLE
    # … which begin again when it flickers
    assert run.see(replace(LAGS, lag_s=1.1)).level is Level.THROTTLE
    assert run.see(replace(LAGS, lag_s=0.3), seconds=3).level is Level.THROTTLE
    view = run.see(replace(LAGS, lag_s=0.3))
    assert view.level is Level.RAMP
    assert view.entry_rate == pytest.approx(0.7 * 4_000)
    assert run.see(WELL, seconds=9).level is Level.RAMP
    assert run.see(WELL, seconds=10).level is Level.NORMAL


def test_lag_around_one_second_does_not_flap():
    run = Run(means=replace(MEANS, workers=14))
    levels = [
        run.see(replace(LAGS, lag_s=1.05 if second % 2 else 0.95)).level for second in range(60)
    ]
    assert set(levels[1:]) == {Level.THROTTLE}


def test_broker_back_with_a_jump_of_lag_ramps_slowly():
    # given: a known capacity and a broker that is away
    run = Run(means=replace(MEANS, drain_per_s=4_000))
    run.see(WELL)
    away = replace(WELL, receiving=False, pending_oldest_s=4.0)
    view = run.see(away, seconds=5)
    assert view.level is Level.HOLD
    assert view.pace(CG_ORDER_CREATE) == replace(view.pace(CG_ORDER_CREATE), workers=1, batch=64)
    assert view.entry_rate == pytest.approx(0.05 * 4_000)

    # when: it is back, what waited is old
    back = replace(WELL, lag_s=30.0, backlog=10_000)
    view = run.see(back)

    # then: consumers do not jump, entry stays held while the lag is beyond the SLO
    assert view.pace(CG_ORDER_CREATE).workers == 1
    assert view.level is Level.HOLD
    # when the lag is gone: a quarter of the capacity, a tenth more every 5 s
    run.see(WELL, seconds=3)
    view = run.see(WELL)
    assert (view.level, view.entry_rate) == (Level.RAMP, pytest.approx(1_000))
    rates = [run.see(WELL, seconds=5).entry_rate for _ in range(7)]
    assert rates == pytest.approx([1_400, 1_800, 2_200, 2_600, 3_000, 3_400, 3_800])
    assert run.see(WELL, seconds=5).level is Level.NORMAL


def test_database_that_stalls_shrinks_consumers_throttles_then_fails_closed_then_recovers():
    run = Run(means=replace(MEANS, drain_per_s=4_000))
    run.see(WELL)
    view = run.see(STALLED)
    assert view.level is Level.THROTTLE
    assert (view.pace(CG_ORDER_CREATE).workers, view.pace(CG_ORDER_CREATE).batch) == (1, 32)
    assert view.pace(CG_AUDIT).workers == 0
    assert run.see(STALLED, seconds=5).level is Level.THROTTLE
    view = run.see(replace(STALLED, database_age_s=10.0))
    assert view.level is Level.FAIL_CLOSED
    assert names(view)[0] == "DATABASE_STALLED"
    # it answers again: calm, then a slow ramp, then all
    assert run.see(WELL, seconds=3).level is Level.FAIL_CLOSED
    view = run.see(WELL)
    assert (view.level, view.entry_rate) == (Level.RAMP, pytest.approx(1_000))
    assert run.see(WELL, seconds=60).level is Level.NORMAL
    assert run.view is not None
    assert run.view.pace(CG_ORDER_CREATE).batch == 128


def test_work_that_is_never_settled_is_a_stall():
    """A lock that nobody lets go: the database answers, the order group makes nothing."""
    run = Run(means=replace(MEANS, drain_per_s=4_000))
    assert run.see(replace(WELL, stuck_s=2.0)).level is Level.NORMAL
    assert run.see(replace(WELL, stuck_s=3.0)).level is Level.THROTTLE
    assert run.see(replace(WELL, stuck_s=5.1)).level is Level.FAIL_CLOSED


def test_stuck_work_is_timed_by_the_same_unit_in_heartbeats():
    meter = StuckMeter()

    def member(process: str, unit: object) -> GroupMember:
        return GroupMember(process=process, state="RUNNING", detail={"unit": unit})

    assert meter.stuck_s([member("a", 1), member("b", 0)], 10.0) == 0
    assert meter.stuck_s([member("a", 1), member("b", 0)], 13.0) == 3
    assert meter.stuck_s([member("a", 1), member("b", 7)], 14.0) == 4
    assert meter.stuck_s([member("a", 2), member("b", 7)], 15.0) == 1
    assert meter.stuck_s([member("a", 0), member("b", "x"), member("c", None)], 16.0) == 0


def test_all_loops_waiting_for_a_store_is_a_stall():
    assert judge_database(replace(WELL, waiting=True)) is Database.STALLED


def test_reservations_near_their_end_without_headroom_fail_closed():
    run = Run(means=replace(MEANS, workers=14))
    near = replace(LAGS, sales={7: SaleSignals(open=500, expiring=3)})
    view = run.see(near)
    assert view.level is Level.FAIL_CLOSED
    assert names(view)[0] == "BACKLOG_NEAR_DEADLINE"
    assert view.signals["steps"] == [
        "TIGHTEN_GATE",
        "CHECK_DATABASE",
        "SLOW_SIDE_GROUPS",
        "KEEP_KEYS",
        "REJECT_EARLY",
        "SPREAD_COMPENSATION",
    ]
    assert view.pace(CG_INVENTORY_COMPENSATE).batch == 32
    assert view.pace(CG_NOTIFY).workers == 0


def test_reservations_near_their_end_with_headroom_add_consumers_first():
    run = Run()
    near = replace(LAGS, sales={7: SaleSignals(open=500, expiring=3)})
    view = run.see(near)
    assert view.level is not Level.FAIL_CLOSED
    assert view.signals["steps"] == [
        "TIGHTEN_GATE",
        "CHECK_DATABASE",
        "ADD_CONSUMERS",
        "SLOW_SIDE_GROUPS",
        "KEEP_KEYS",
    ]


def test_reservations_near_their_end_without_lag_are_no_backlog():
    """Held reservations and a slow projection stay open, too: they say nothing of the backlog."""
    run = Run(means=replace(MEANS, workers=14))
    view = run.see(replace(WELL, sales={7: SaleSignals(open=500, expiring=3)}))
    assert view.level is Level.NORMAL


def test_side_groups_wait_while_orders_lag_and_come_back():
    run = Run()
    view = run.see(LAGS)
    assert [view.pace(group).workers for group in (CG_AUDIT, CG_NOTIFY)] == [0, 0]
    assert view.pace(CG_ORDER_TIMEOUT).workers == 1
    assert run.see(replace(LAGS, lag_s=0.7)).pace(CG_AUDIT).workers == 0
    assert run.see(replace(LAGS, lag_s=0.4)).pace(CG_AUDIT).workers == 1


def test_a_sale_with_too_much_under_way_takes_nothing_new_while_throttled():
    run = Run(means=replace(MEANS, workers=14))
    sales = {
        1: SaleSignals(open=12_000),
        2: SaleSignals(open=11_999, pending=999),
        3: SaleSignals(pending=1_000),
    }
    view = run.see(replace(LAGS, sales=sales))
    assert view.busy_activities == {1, 3}
    assert Run().see(replace(WELL, sales=sales)).busy_activities == frozenset()


def test_nobody_consumes_while_reservations_wait():
    run = Run()
    view = run.see(replace(WELL, instances=0, backlog=10, drain_per_s=0, busy_per_s=0))
    assert view.level is Level.THROTTLE
    assert names(view) == ["NO_CONSUMER"]
    assert Run().see(replace(WELL, instances=0)).level is Level.NORMAL


def test_capacity_is_learned_only_under_load_and_probes_upward():
    run = Run()
    assert run.see(replace(WELL, busy_per_s=50.0)).drain_per_s == 0
    assert run.see(replace(LAGS, busy_per_s=1_000.0)).drain_per_s == 1_000
    assert run.see(replace(LAGS, busy_per_s=2_000.0)).drain_per_s == pytest.approx(1_300)
    # arrivals at the limit and no lag: the limit was too low
    run.see(WELL, seconds=120)
    assert run.view is not None
    assert run.view.level is Level.NORMAL
    before = run.view.drain_per_s
    after = run.see(replace(WELL, arrival_per_s=run.view.entry_rate)).drain_per_s
    assert after == pytest.approx(1.02 * before, rel=0.001)
    # fewer arrivals than allowed prove nothing
    assert run.see(replace(WELL, arrival_per_s=10.0)).drain_per_s == after


def fill(run: Run, *, seconds: int) -> list[Level]:
    """Let arrivals take all of the entry and lag nowhere; return the levels."""
    levels = []
    for _ in range(seconds):
        assert run.view is not None
        levels.append(run.see(replace(WELL, arrival_per_s=run.view.entry_rate)).level)
    return levels


def test_a_small_share_of_the_capacity_filled_without_lag_proves_nothing_about_the_whole():
    # given: a known capacity, and a broker that was away
    run = Run(means=replace(MEANS, drain_per_s=4_000))
    run.see(WELL)
    assert run.see(replace(WELL, receiving=False)).entry_rate == pytest.approx(200)

    # when: buyers take all of the 5 %, then of the quarter that follows, up to the whole
    levels = fill(run, seconds=43)

    # then: what is known stays as it was
    assert levels == [Level.HOLD] * 3 + [Level.RAMP] * 40
    assert run.view is not None
    assert run.view.drain_per_s == 4_000
    # and only the entry that belongs to it proves something
    assert fill(run, seconds=2) == [Level.NORMAL] * 2
    assert run.view.drain_per_s == pytest.approx(4_080)


def test_a_throttled_entry_proves_nothing_about_the_capacity():
    run = Run(means=replace(MEANS, drain_per_s=4_000))
    run.see(replace(WELL, replication_lag_s=11.0))
    assert fill(run, seconds=3) == [Level.THROTTLE] * 3
    assert run.view is not None
    assert run.view.drain_per_s == 4_000


def test_the_operators_own_limit_filled_proves_nothing_about_the_capacity():
    run = Run(means=replace(MEANS, drain_per_s=4_000, entry_rate=100.0))
    run.see(WELL)
    assert set(fill(run, seconds=60)) == {Level.NORMAL}
    assert run.view is not None
    assert (run.view.entry_rate, run.view.drain_per_s) == (100, 4_000)


def test_a_gate_that_cannot_be_read_throttles_entry_and_ramps_after():
    run = Run(means=replace(MEANS, drain_per_s=4_000))
    run.see(WELL)
    view = run.see(replace(WELL, gate_age_s=2.4))
    assert view.level is Level.NORMAL
    view = run.see(replace(WELL, gate_age_s=2.6))
    assert (view.level, names(view)) == (Level.THROTTLE, ["GATE_UNREAD"])
    assert view.signals["gate_age_s"] == 2.6
    run.see(WELL, seconds=3)
    view = run.see(WELL)
    assert (view.level, view.entry_rate) == (Level.RAMP, pytest.approx(1_000))


def test_replicas_far_behind_throttle_entry():
    run = Run()
    assert run.see(replace(WELL, replication_lag_s=11.0)).level is Level.THROTTLE

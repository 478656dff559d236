"""Workers by role and by group, from heartbeats."""

from datetime import UTC, datetime, timedelta
from typing import Any

from messaging.selectors import WorkerRecord
from messaging.topology import CG_AUDIT, CG_ORDER_CREATE
from seckill.monitor import crew

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def worker(name: str, *, age_s: float = 0.5, **changes: Any) -> WorkerRecord:
    values: dict[str, Any] = {
        "worker_id": f"host:1:consumer/{name}",
        "role": "consumer",
        "group": CG_ORDER_CREATE,
        "build": 1,
        "state": "RUNNING",
        "alive": age_s <= 10,
        "beat_at": NOW - timedelta(seconds=age_s),
        "detail": {"lag_s": 0.2, "drain_per_s": 100.0},
    }
    return WorkerRecord(**(values | changes))


def test_roles_tell_the_living_by_state_and_who_fell_silent() -> None:
    found = crew.roles(
        [
            worker("a"),
            worker("b", state="WAITING", build=2),
            worker("c", age_s=40),
            worker("d", age_s=40, state="STOPPED"),  # said that it ends
            worker("e", age_s=500),  # too long ago to be news
            worker("pending", role="scanner", group=""),
        ],
        NOW,
    )
    consumer, scanner = found
    assert (consumer.role, consumer.alive, consumer.silent) == ("consumer", 2, 1)
    assert consumer.states == {"RUNNING": 1, "WAITING": 1}
    assert consumer.builds == (1, 2)
    assert (scanner.role, scanner.alive, scanner.silent) == ("scanner", 1, 0)


def test_a_group_is_as_late_as_its_slowest_member_and_drains_as_all_together() -> None:
    (group,) = crew.groups(
        [
            worker("a"),
            worker("b", detail={"lag_s": 4.5, "drain_per_s": 20.0}, state="WAITING"),
            worker("c", age_s=60, detail={"lag_s": 99.0, "drain_per_s": 99.0}),
        ],
        set(),
        NOW,
    )
    assert (group.members, group.lag_s, group.drain_per_s) == (2, 4.5, 120.0)
    assert group.state == "WAITING"


def test_the_lag_of_a_group_that_nobody_works_for_grows() -> None:
    (group,) = crew.groups([worker("a", age_s=60)], set(), NOW)
    assert (group.members, group.state) == (0, "NOBODY")
    assert group.lag_s == 60.2


def test_a_paused_group_is_paused_whatever_its_members_say() -> None:
    found = crew.groups([worker("a"), worker("b", group=CG_AUDIT)], {CG_AUDIT}, NOW)
    assert {group.group: group.state for group in found} == {
        CG_AUDIT: "PAUSED",
        CG_ORDER_CREATE: "RUNNING",
    }

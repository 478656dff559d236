"""What the heartbeat rows of a group's members tell: how far behind it is, and who they are."""

from typing import Any

import pytest
from django.db import connection

from messaging import selectors
from messaging.heartbeat import Heartbeats
from messaging.models import Heartbeat
from messaging.pulse import LoopState, Pulse
from messaging.topology import CG_SETTLEMENT
from tests.integration.messaging.consuming import GROUP

pytestmark = pytest.mark.django_db(transaction=True)


def test_group_lag_comes_from_live_members_and_grows_without_any() -> None:
    assert selectors.group_lag(GROUP.name) == selectors.GroupLag(
        members=0, lag_s=0.0, drain_per_s=0.0
    )
    fast, slow = Pulse(), Pulse()
    fast.report(LoopState.RUNNING, lag_s=0.1, drain_per_s=900.0)
    slow.report(LoopState.RUNNING, lag_s=2.5, drain_per_s=100.0)
    beats = Heartbeats(role="test", members=[("a", GROUP.name, fast), ("b", GROUP.name, slow)])

    beats.beat()
    assert selectors.group_lag(GROUP.name) == selectors.GroupLag(
        members=2, lag_s=2.5, drain_per_s=1000.0
    )
    slow.finish()
    beats.beat()
    assert selectors.group_lag(GROUP.name).lag_s == 0.1

    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE messaging_heartbeat SET beat_at = now() - interval '100 s',"
            " detail = '{\"lag_s\": 2}'"
        )
    lag = selectors.group_lag(GROUP.name)
    assert lag.members == 0
    assert 102 <= lag.lag_s < 110
    assert [w.alive for w in selectors.workers()] == [False, False]


def test_a_worker_id_that_is_used_again_tells_who_beats_now(settings: Any) -> None:
    """Host and pid come again after a restart: the row must not go on to tell the old build."""
    settings.SECKILL_BUILD, settings.SECKILL_VERSION = 6, "old"
    Heartbeats(role="test", members=[("a", GROUP.name, Pulse())]).beat()
    before = Heartbeat.objects.get()
    settings.SECKILL_BUILD, settings.SECKILL_VERSION = 7, "new"

    Heartbeats(role="test", members=[("a", CG_SETTLEMENT, Pulse())]).beat()

    now = Heartbeat.objects.get()
    assert (before.build, before.version, before.group) == (6, "old", GROUP.name)
    assert (now.worker_id, now.role) == (before.worker_id, "test")
    assert (now.build, now.version, now.group) == (7, "new", CG_SETTLEMENT)
    assert now.started_at > before.started_at

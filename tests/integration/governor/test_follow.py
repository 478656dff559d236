"""What every process reads: fresh within a second, a THROTTLE when nobody is heard, no error."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from inventory.errors import GateUnavailable
from messaging.topology import CG_AUDIT, CG_ORDER_CREATE
from seckill.governor import Level, current, store
from seckill.governor.follower import Follower, stop_following
from tests.integration.governor.views import poll, publish

pytestmark = pytest.mark.usefixtures("redis_client")


@pytest.fixture(autouse=True)
def _governed(settings: Any) -> Iterator[None]:
    settings.SECKILL_GOVERNOR = "on"
    settings.SECKILL_GOVERNOR_STALE_RATE = 500.0
    yield
    stop_following()


def test_off_means_the_settings_own_limits(settings: Any) -> None:
    settings.SECKILL_GOVERNOR = "off"
    settings.SECKILL_ENTRY_RATE = 7.0
    publish(level=Level.FAIL_CLOSED)

    found = current()

    assert (found.level, found.entry_rate, found.stale) == (Level.NORMAL, 7.0, False)
    assert found.reasons == ("GOVERNOR_OFF",)
    assert found.pace(CG_ORDER_CREATE).batch == settings.SECKILL_BATCH_MAX


def test_no_governor_is_a_throttle_in_which_consumers_go_on(settings: Any) -> None:
    found = current()

    assert (found.level, found.stale, found.entry_rate) == (Level.THROTTLE, True, 500.0)
    assert found.reasons == ("GOVERNOR_STALE",)
    assert found.pace(CG_ORDER_CREATE).batch == settings.SECKILL_BATCH_MAX
    assert found.pace(CG_AUDIT).batch == settings.SECKILL_BATCH_MAX // 4
    assert found.pace(CG_AUDIT).workers == 1


def test_operators_own_limit_holds_while_stale(settings: Any) -> None:
    settings.SECKILL_ENTRY_RATE = 100.0
    assert current().entry_rate == 100.0


def test_a_decision_is_seen_within_a_second_and_ends_by_itself() -> None:
    assert current().stale

    publish(level=Level.HOLD, entry_rate=12.0)
    assert poll(lambda: current().level is Level.HOLD) < 1.0
    assert (current().entry_rate, current().stale) == (12.0, False)

    publish(ttl_ms=50, level=Level.NORMAL)
    assert poll(lambda: current().stale) < 1.5


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        "{}",
        '{"level":"BOLD","entry_rate":1,"groups":{},"reasons":[],"decided_at_ms":1}',
        '{"level":"NORMAL","entry_rate":-1,"groups":{},"reasons":[],"decided_at_ms":1}',
        '{"level":"NORMAL","entry_rate":1e999,"groups":{},"reasons":[],"decided_at_ms":1}',
        '{"level":"NORMAL","entry_rate":1,"groups":{"g":{"workers":1,"batch":0}},"reasons":[],'
        '"decided_at_ms":1}',
        '{"level":"NORMAL","entry_rate":1,"groups":{},"reasons":[],"decided_at_ms":1,"stale":true}',
        '{"level":"NORMAL","entry_rate":1,"groups":{},"reasons":[],"decided_at_ms":1,"signals":{"a":'
        + "[" * 100_000
        + "]" * 100_000
        + "}}",
    ],
    ids=lambda text: text[:100],
)
def test_what_no_governor_wrote_is_a_throttle(redis_client: Any, text: str) -> None:
    publish(level=Level.NORMAL)
    poll(lambda: not current().stale)

    redis_client.set(store.DECISION, text)

    poll(lambda: current().stale)
    assert current().level is Level.THROTTLE

    publish(level=Level.NORMAL)  # whoever read it reads on
    poll(lambda: not current().stale)


def test_a_decision_of_a_wrong_type_is_a_throttle(redis_client: Any) -> None:
    redis_client.hset(store.DECISION, "a", "b")
    assert current().level is Level.THROTTLE


def test_redis_that_is_away_keeps_the_last_decision_for_its_time_only(settings: Any) -> None:
    settings.SECKILL_GOVERNOR_TTL_MS = 2_500
    now = [100.0]
    answers: list[store.Published | None] = [
        store.Published(
            decision='{"level":"NORMAL","entry_rate":9,"groups":{},"reasons":["ALL_WELL"],'
            '"decided_at_ms":1}',
            web_processes=2,
            now_ms=1,
        )
    ]

    def read() -> store.Published:
        if answers[0] is None:
            raise GateUnavailable("gone")
        return answers[0]

    follower = Follower(read=read, clock=lambda: now[0])
    follower.refresh()
    follower._thread = object()  # type: ignore[assignment]  # the test turns, no thread

    answers[0] = None
    now[0] += 2.4
    follower.refresh()
    assert (follower.current().level, follower.current().entry_rate) == (Level.NORMAL, 9)
    now[0] += 0.2
    assert follower.current().stale


def test_a_read_never_waits_for_redis_that_hangs() -> None:
    def hang() -> store.Published:
        time.sleep(3)
        raise GateUnavailable("too late")

    follower = Follower(read=hang)
    began = time.monotonic()
    assert follower.current().stale  # the first may wait half a second
    first_s = time.monotonic() - began
    began = time.monotonic()
    for _ in range(1_000):
        assert follower.current().stale
    assert first_s < 1.5
    assert time.monotonic() - began < 1.0


def test_web_processes_share_the_rate_and_a_leaving_one_gives_its_share_back() -> None:
    publish(entry_rate=100.0)
    first, second = Follower(web_process="a"), Follower(web_process="b")
    try:
        first.current()
        second.current()
        poll(lambda: first.current().web_processes == 2)
        poll(lambda: second.current().web_processes == 2)
    finally:
        second.close()
    poll(lambda: first.current().web_processes == 1)
    first.close()


def test_web_processes_share_the_rate_also_while_no_governor_speaks() -> None:
    first, second = Follower(web_process="a"), Follower(web_process="b")
    try:
        first.current()
        second.current()
        poll(lambda: first.current().web_processes == 2)
        assert first.current().stale
    finally:
        first.close()
        second.close()


def test_a_killed_web_process_is_forgotten_after_three_seconds(redis_client: Any) -> None:
    seconds, _ = redis_client.time()
    redis_client.zadd(store.WEB, {"dead": (seconds - 4) * 1000})
    follower = Follower(web_process="a")
    try:
        poll(lambda: follower.current().web_processes == 1 and redis_client.zcard(store.WEB) == 1)
        assert redis_client.zrange(store.WEB, 0, -1) == ["a"]
    finally:
        follower.close()

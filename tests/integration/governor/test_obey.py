"""Consumers and admission do what the decision says, within a second."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from messaging.broker.memory import MemoryBroker
from messaging.pace import Pace
from messaging.pulse import Pulse
from messaging.topology import CG_AUDIT, CG_ORDER_CREATE
from messaging.worker import StopSignal
from seckill.governor import GroupPace, Level, store
from seckill.governor.follower import stop_following
from seckill.governor.loops import loop_pace, wait_for_work
from tests.fixtures.sales import Sale
from tests.fixtures.web import StartWeb, eventually, hot_path, in_thread
from tests.integration.governor.views import poll, publish
from tests.integration.messaging.consuming import consuming
from tests.integration.messaging.messages import InboxHandler, acked, evt
from tests.integration.messaging.messages import publish as send


@pytest.fixture(autouse=True)
def _governed(settings: Any) -> Iterator[None]:
    settings.SECKILL_GOVERNOR = "on"
    yield
    stop_following()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("redis_client")
def test_a_consumer_keeps_the_published_pace() -> None:
    # given: nothing may be worked on
    broker, handler = MemoryBroker(), InboxHandler()
    publish(groups={CG_ORDER_CREATE: GroupPace(workers=0, batch=128)})
    poll(lambda: loop_pace(CG_ORDER_CREATE, number=0).batch == 0)
    with consuming(broker, handler, pace=lambda: loop_pace(CG_ORDER_CREATE, number=0)) as pulse:
        poll(lambda: pulse.snapshot()[1].get("batch") == 0)
        ids = [evt() for _ in range(40)]
        send(broker, *ids)
        threading.Event().wait(0.5)
        assert handler.batches == []

        # when: small batches are allowed
        publish(groups={CG_ORDER_CREATE: GroupPace(workers=1, batch=8)})
        seconds = poll(lambda: bool(handler.batches))

        # then: within a second, and none is larger
        assert seconds < 1.5
        poll(lambda: len(acked(broker)) == 40)
        assert max(map(len, handler.batches)) <= 8


@pytest.mark.django_db(transaction=True)
def test_what_was_received_before_a_stop_is_handled_not_left() -> None:
    """Leaving it would burn a delivery attempt of each message for every change of pace."""
    broker, paces = MemoryBroker(), [Pace(batch=128)]
    release = threading.Event()
    handler = InboxHandler(inject=lambda ids: release.wait(10) and None)
    send(broker, *(evt() for _ in range(100)))
    with consuming(broker, handler, pace=lambda: paces[0]):
        poll(lambda: bool(handler.batches))
        paces[0] = Pace(batch=0)
        more = [evt() for _ in range(100)]
        release.set()
        poll(lambda: len(acked(broker)) == 100)
        threading.Event().wait(1.5)  # the long polls that were under way have ended
        send(broker, *more)
        threading.Event().wait(0.6)
        assert len(acked(broker)) == 100
        paces[0] = Pace(batch=128)
        poll(lambda: len(acked(broker)) == 200)


@pytest.mark.django_db(transaction=True)
def test_a_spare_loop_is_no_lag() -> None:
    broker = MemoryBroker()
    with consuming(broker, InboxHandler(), pace=lambda: Pace(batch=0, spare=True)) as pulse:
        poll(lambda: "lag_s" in pulse.snapshot()[1])
        threading.Event().wait(2.5)  # longer than quiet_s
        assert pulse.snapshot()[1]["lag_s"] == 0


@pytest.mark.usefixtures("redis_client")
def test_only_the_first_loops_of_a_process_work() -> None:
    publish(groups={CG_ORDER_CREATE: GroupPace(workers=2, batch=64)})
    poll(lambda: loop_pace(CG_ORDER_CREATE, number=1).batch == 64)
    assert loop_pace(CG_ORDER_CREATE, number=0) == Pace(batch=64)
    assert loop_pace(CG_ORDER_CREATE, number=2) == Pace(batch=0, spare=True)
    publish(groups={CG_AUDIT: GroupPace(workers=0, batch=64)})
    poll(lambda: loop_pace(CG_AUDIT, number=0) == Pace(batch=0))


@pytest.mark.usefixtures("redis_client")
def test_a_loop_waits_for_work_without_a_connection_and_ends_when_told() -> None:
    stop, pulse = StopSignal(), Pulse()
    thread = threading.Thread(
        target=wait_for_work, args=(lambda: Pace(batch=0, spare=True), stop, pulse)
    )
    thread.start()
    poll(lambda: pulse.snapshot()[1].get("spare"))
    assert thread.is_alive()
    stop.set()
    thread.join(2)
    assert not thread.is_alive()


async def test_fail_closed_makes_nothing_new_and_still_answers_holders(
    start_web: StartWeb, sale: Sale, redis_client: Any
) -> None:
    # given: a buyer who holds a reservation
    await in_thread(publish)
    web = await start_web()
    held = await web.buy(sale, "holder", key="k")
    assert held.status == 202

    # when
    await in_thread(publish, level=Level.FAIL_CLOSED)
    closed = await eventually(lambda: _refused(web, sale, "FAIL_CLOSED"), timeout_s=2.0)

    # then
    assert closed.headers["retry-after"] == "5"
    again = await web.buy(sale, "holder", key="k")
    assert (again.status, again.json["reservation_id"]) == (202, held.json["reservation_id"])
    other_key = await web.buy(sale, "holder")
    assert other_key.code == "ALREADY_RESERVED"
    stock = redis_client.get(f"seckill:{{{sale.activity_id}}}:sku:{sale.sku_id}:stock")
    assert stock == "9"

    # and it opens again by itself
    await in_thread(publish)
    await eventually(lambda: _accepted(web, sale), timeout_s=2.0)


async def _refused(web: Any, sale: Sale, code: str) -> Any:
    reply = await web.buy(sale, "late")
    if reply.status == 202:  # the decision was not there yet
        await in_thread(_free, sale)
        return None
    return reply if reply.code == code else None


def _free(sale: Sale) -> None:
    import redis
    from django.conf import settings

    with redis.Redis.from_url(settings.REDIS_URL) as client:
        client.hdel(f"seckill:{{{sale.activity_id}}}:sku:{sale.sku_id}:buyers", "late")
        client.incr(f"seckill:{{{sale.activity_id}}}:sku:{sale.sku_id}:stock")


async def _accepted(web: Any, sale: Sale) -> bool:
    return bool((await web.buy(sale, "late")).status == 202)


async def test_a_busy_sale_takes_nothing_new_others_do(start_web: StartWeb, sale: Sale) -> None:
    await in_thread(publish, level=Level.THROTTLE, busy_activities=frozenset({sale.activity_id}))
    web = await start_web()
    reply = await web.buy(sale, "u")
    assert (reply.status, reply.code, reply.headers["retry-after"]) == (503, "BUSY", "1")
    await in_thread(publish, level=Level.THROTTLE, busy_activities=frozenset({10**6}))
    await eventually(lambda: _accepted(web, sale), timeout_s=2.0)


async def test_entry_rate_is_obeyed_by_each_process_for_its_share(
    start_web: StartWeb, sale: Sale, redis_client: Any
) -> None:
    """40/s for two processes: 20 each. A quiet second leaves a burst of a tenth of it."""
    await in_thread(publish, entry_rate=40.0)
    seconds, _ = redis_client.time()
    redis_client.zadd(store.WEB, {"another": (seconds + 60) * 1000})
    web = await start_web()

    replies = await asyncio.gather(*(web.buy(sale, f"u{n}") for n in range(10)))

    statuses = [reply.status for reply in replies]
    assert statuses.count(202) == 2
    assert statuses.count(429) == 8


@pytest.mark.parametrize("sale", [{"units": 100}], indirect=True)
async def test_entry_burst_lets_a_crowd_in_at_once_but_no_more(
    start_web: StartWeb, sale: Sale
) -> None:
    await in_thread(publish, entry_rate=30.0, entry_burst=30.0)
    web = await start_web()

    replies = await asyncio.gather(*(web.buy(sale, f"u{n}") for n in range(90)))

    accepted = [reply.status for reply in replies].count(202)
    assert 30 <= accepted <= 60


async def test_without_a_governor_entry_is_the_careful_one(
    start_web: StartWeb, sale: Sale, settings: Any
) -> None:
    settings.SECKILL_GOVERNOR_STALE_RATE = 10.0
    web = await start_web()

    replies = await asyncio.gather(*(web.buy(sale, f"u{n}") for n in range(8)))

    assert [reply.status for reply in replies].count(202) == 1
    assert hot_path(sale)

"""The closed loop against a real local server: every request answered once, refusals come again."""

import asyncio
import time

import pytest

from bench.loadgen.closed import ClosedLoop
from bench.loadgen.crowd import Crowd
from bench.loadgen.histogram import bucket_of
from bench.loadgen.plan import Mode, Plan
from bench.loadgen.pool import Pool
from bench.loadgen.requests import RequestBuilder

ACCEPT = b'{"reservation_id":"rsv_%026d","status":"QUEUED"}'


class Shop:
    """Refuses or drops the first requests, then accepts each key once."""

    def __init__(self, *, refuse: int = 0, drop: int = 0) -> None:
        self.refuse, self.drop = refuse, drop
        self.keys: list[str] = []
        self.paths: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                await reader.readexactly(14)
                self.paths.append(head.split(" ")[1])
                if self.drop:
                    self.drop -= 1
                    break
                key = head.split("idempotency-key: ")[1].split("\r\n")[0]
                if self.refuse:
                    self.refuse -= 1
                    status, body = b"503 Busy", b'{"code":"BUSY"}'
                else:
                    if key not in self.keys:
                        self.keys.append(key)
                    status, body = b"202 Accepted", ACCEPT % self.keys.index(key)
                writer.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: ")
                writer.write(b"%d\r\n\r\n" % len(body) + body)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


@pytest.fixture
async def open_shop():
    servers = []

    async def open_it(shop: Shop) -> int:
        server = await asyncio.start_server(shop.serve, "127.0.0.1", 0)
        servers.append(server)
        return server.sockets[0].getsockname()[1]

    yield open_it
    for server in servers:
        server.close()


async def play(plan: Plan):
    builder = RequestBuilder(plan, secret="")
    driver = Crowd(plan, builder) if plan.mode is Mode.CROWD else ClosedLoop(plan, builder)
    pool = Pool(plan, driver)
    await pool.open()
    tasks = []
    if isinstance(driver, Crowd):
        driver.arrive()
        tasks.append(asyncio.ensure_future(driver.tick()))
    pool.start()
    try:
        await asyncio.wait_for(driver.finished.wait(), 10 if plan.mode is Mode.CLOSED else 1.5)
    except TimeoutError:
        assert plan.mode is Mode.CROWD
        driver.stop()
    for task in tasks:
        task.cancel()
    await pool.settle()
    pool.close()
    return driver.tally


async def test_every_user_is_answered_once(open_shop):
    shop = Shop()
    port = await open_shop(shop)
    tally = await play(Plan(port=port, path="/p", users=100, connections=7))
    assert tally.codes == {"202": 100}
    assert (len(tally.reservations), tally.queued, tally.errors) == (100, 100, {})


async def test_the_refused_come_again_with_the_same_key(open_shop):
    shop = Shop(refuse=5)
    port = await open_shop(shop)
    tally = await play(Plan(port=port, path="/p", users=20, connections=4, retry=True))
    assert tally.codes == {"202": 20, "503 BUSY": 5}
    assert len(shop.keys) == 20


async def test_a_dropped_connection_is_an_error_and_is_replaced(open_shop):
    shop = Shop(drop=3)
    port = await open_shop(shop)
    tally = await play(Plan(port=port, path="/p", users=20, connections=2, retry=True))
    assert tally.errors == {"closed": 3}
    assert tally.codes == {"202": 20}


async def test_without_retry_a_refusal_is_final(open_shop):
    shop = Shop(refuse=5, drop=1)
    port = await open_shop(shop)
    tally = await play(Plan(port=port, path="/p", users=20, connections=4))
    assert tally.codes["202"] + 5 + sum(tally.errors.values()) == 20


async def test_the_time_of_who_is_asked_to_come_again_is_from_his_first_try(open_shop):
    shop = Shop(refuse=5)
    port = await open_shop(shop)
    tally = await play(Plan(port=port, path="/p", users=20, connections=4, retry=True))
    assert tally.answers == 25
    assert tally.histogram.total == 20  # a sample a buyer: a 503 is no end
    # He comes again after a tenth of a second at the earliest.
    waited = tally.histogram.counts[bucket_of(100_000) :]
    assert sum(waited) == 5


async def test_the_time_of_who_lost_his_connection_is_from_his_first_try(open_shop):
    shop = Shop(drop=3)
    port = await open_shop(shop)
    tally = await play(Plan(port=port, path="/p", users=20, connections=2, retry=True))
    assert tally.histogram.total == 20
    assert sum(tally.histogram.counts[bucket_of(100_000) :]) == 3


async def test_a_patient_buyer_of_a_crowd_waits_from_his_first_click(open_shop):
    shop = Shop(refuse=4)
    port = await open_shop(shop)
    plan = Plan(
        port=port,
        path="/p",
        mode=Mode.CROWD,
        users=20,
        connections=10,
        arrival_s=0.1,
        clickers=0.0,
        key_reusers=0.0,
        gives_up_after_503=0.0,
    )
    tally = await play(plan)
    assert tally.codes == {"202": 20, "503 BUSY": 4}
    assert tally.histogram.total == 20
    assert sum(tally.histogram.counts[bucket_of(200_000) :]) == 4


async def test_who_still_has_to_come_again_at_the_end_is_unanswered(open_shop):
    port = await open_shop(Shop(refuse=3))
    plan = Plan(port=port, path="/p", users=3, connections=3, retry=True)
    driver = ClosedLoop(plan, RequestBuilder(plan, secret=""))
    pool = Pool(plan, driver)
    await pool.open()
    pool.start()
    while driver.tally.answers < 3:
        await asyncio.sleep(0)
    driver.stop()
    pool.close()
    assert driver.unanswered == 3


async def test_what_holders_are_answered_is_counted_apart(open_shop):
    port = await open_shop(Shop(refuse=1))
    plan = Plan(port=port, path="/p", users=10, connections=1, holders=2, holder_every=5)
    tally = await play(plan)
    assert tally.codes == {"202": 9, "503 BUSY": 1}
    assert tally.holder_codes == {"202": 1, "503 BUSY": 1}


async def test_a_limit_ends_a_cycle(open_shop):
    shop = Shop()
    port = await open_shop(shop)
    plan = Plan(port=port, path="/p", users=10, connections=3, cycle=True, limit=35)
    tally = await play(plan)
    assert tally.codes == {"202": 35}
    assert len(tally.reservations) == 10


async def test_a_crowd_clicks_at_least_once_each_and_reused_keys_name_one_reservation(open_shop):
    shop = Shop(refuse=10)
    port = await open_shop(shop)
    plan = Plan(
        port=port,
        path="/p",
        mode=Mode.CROWD,
        users=60,
        connections=10,
        arrival_s=0.2,
        clickers=0.0,
        key_reusers=1.0,
        gives_up_after_503=0.0,
    )
    tally = await play(plan)
    assert tally.codes["202"] == 180
    assert len(tally.reservations) == 60
    assert tally.double_reservations == 0


async def test_buyers_take_turns_on_several_paths(open_shop):
    shop = Shop()
    port = await open_shop(shop)
    await play(Plan(port=port, path="/a", more_paths=["/b", "/c"], users=30, connections=3))
    assert {path: shop.paths.count(path) for path in ("/a", "/b", "/c")} == {
        "/a": 10,
        "/b": 10,
        "/c": 10,
    }


@pytest.mark.parametrize(("rush", "early"), [(0.0, 0.2), (1.0, 1.0)])
async def test_a_rush_comes_early_and_without_one_buyers_are_spread(rush, early):
    plan = Plan(
        port=1,
        path="/p",
        mode=Mode.CROWD,
        users=2_000,
        arrival_s=100.0,
        rush=rush,
        clickers=0.0,
        key_reusers=0.0,
    )
    crowd = Crowd(plan, RequestBuilder(plan, secret=""))
    before = time.perf_counter_ns()
    crowd.arrive()
    due_s = [(due_ns - before) / 1e9 for due_ns, _, _ in crowd._due]
    assert len(due_s) == 2_000
    assert sum(due < 20 for due in due_s) / 2_000 == pytest.approx(early, abs=0.04)

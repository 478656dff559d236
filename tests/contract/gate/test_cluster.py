"""The two runners on a Redis Cluster of three shards."""

import asyncio
import time

import pytest
import redis

from inventory import keys, readiness, verbs
from inventory.contracts import ReserveCode
from inventory.errors import GateUnavailable
from inventory.gate import ONE_SERVER, AsyncGate, Gate, gate
from inventory.turns import each_sale
from tests.fixtures.gate import GateSale, wish
from tests.fixtures.redis_cluster import RedisCluster


def _holder(cluster: RedisCluster, activity_id: int) -> "redis.Redis[str]":
    return cluster.node(cluster.primary_of(keys.mark(activity_id)))


async def test_every_verb_works(redis_cluster) -> None:
    """All keys of a call are in one slot, and declared."""
    client, url = _holder(redis_cluster, 42), redis_cluster.url
    runner = Gate(url=url, cluster=True, timeout_s=20)
    sale = GateSale(client=client, gate=runner, sku_ids=(7, 8))
    sale.load(5)
    sale.open()
    ann, bob = sale.buy("ann"), sale.buy("bob", sku_id=8)
    assert sale.code("ann") is ReserveCode.ALREADY_RESERVED
    sale.mark_sent(bob)
    sale.give_back(sale.buy("cat"))
    sale.make_due(ann.reservation_id)
    due = sale.run(verbs.due_ids(activity_id=42, limit=5))
    assert len(sale.claim(*due).reservations) == 1
    sale.run(
        verbs.reschedule(activity_id=42, items=[(ann.reservation_id, 5)], lease_owner="scan-1")
    )
    sale.confirm(ann)
    sale.release(ann)
    sale.edit(limit_per_user=2)
    sale.run(verbs.adjust_stock(activity_id=42, sku_id=7, operation_id="o", units=1, epoch=1))
    assert sale.stock() == 6
    assert sale.run(verbs.pending_stats(activity_id=42)).open == 1
    bobs, nobodys = bob.reservation_id, "rsv_nobody"
    users = ["bob", "eva"]
    named = verbs.named_reservations(activity_id=42, sku_id=8, users=users)
    assert sale.run(named) == [bobs, None]
    known = verbs.known_reservations(activity_id=42, reservation_ids=[bobs, nobodys])
    assert sale.run(known) == [True, False]
    server = runner.server_of(keys.mark(42))
    assert server == runner.server_of(keys.stock(42, 8)) != ONE_SERVER
    began_ms, now_ms = runner.server_times(server)
    assert now_ms - 120_000 < began_ms <= now_ms
    sale.rebuilding()
    other = AsyncGate(url=url, cluster=True, timeout_s=20)
    assert await other.run(verbs.holders(activity_id=42, sku_id=8)) == {"bob": bob.reservation_id}
    (reply,) = await other.run(
        verbs.reserve(activity_id=42, requests=[wish("x")], lease_owner="me", lease_ms=1)
    )
    assert reply.code is ReserveCode.CLOSED
    await other.close()
    runner.close()


def test_each_shard_is_asked_for_itself(redis_cluster) -> None:
    """Asked without a target, the client answers for one server that it chose."""
    runner = Gate(url=redis_cluster.url, cluster=True)
    servers = runner.servers()
    assert len(servers) == 3
    evicting, *others = (runner.server_of(keys.mark(n)) for n in _one_a_shard(redis_cluster))
    assert {evicting, *others} == set(servers)
    node = redis_cluster.node(int(evicting.rpartition(":")[2]))
    node.config_set("maxmemory-policy", "allkeys-lru")
    try:
        policies = {s: runner.server_facts(s)[0]["maxmemory-policy"] for s in servers}
    finally:
        node.config_set("maxmemory-policy", "noeviction")
    assert policies == {evicting: "allkeys-lru"} | dict.fromkeys(others, "noeviction")
    with pytest.raises(GateUnavailable, match="left the cluster"):
        runner.server_times("127.0.0.1:1")
    runner.close()


def test_readiness_names_the_shard(db, redis_cluster, settings, monkeypatch) -> None:
    settings.REDIS_URL, settings.REDIS_CLUSTER = redis_cluster.url, True
    monkeypatch.setattr("inventory.gate._gate", None)
    assert readiness.problems() == []
    port = redis_cluster.ports[2]
    redis_cluster.node(port).config_set("maxmemory-policy", "allkeys-lru")
    try:
        assert [p.split(" (")[0] for p in readiness.problems()] == [
            f"Redis at 127.0.0.1:{port} evicts keys"
        ]
    finally:
        redis_cluster.node(port).config_set("maxmemory-policy", "noeviction")


def test_a_shard_that_is_away_stops_its_own_sales_only(
    db, redis_cluster, settings, monkeypatch
) -> None:
    settings.REDIS_URL, settings.REDIS_CLUSTER = redis_cluster.url, True
    monkeypatch.setattr("inventory.gate._gate", None)
    port = redis_cluster.ports[1]
    redis_cluster.kill(port)

    found = readiness.look()

    assert (found.wrong, found.blocking, found.servers) == ([], [], 3)
    (away,) = found.away
    assert away.startswith(f"Redis at 127.0.0.1:{port} does not answer")
    hit, *others = sorted(_one_a_shard(redis_cluster), key=lambda sale: _port(sale) != port)
    seen = []

    def look(sale: int, _: None) -> None:
        seen.append((sale, gate().run(verbs.pending_stats(activity_id=sale)).open))

    assert each_sale(dict.fromkeys([hit, *others]), look) == {hit}
    assert sorted(seen) == [(sale, 0) for sale in sorted(others)]
    for each in set(redis_cluster.ports) - {port}:
        redis_cluster.kill(each)
    assert gate().answering() == []
    with pytest.raises(GateUnavailable):
        each_sale(dict.fromkeys(others), look)


async def test_news_is_heard_though_the_server_of_the_url_is_down(redis_cluster) -> None:
    """What any server of a cluster is told, all of them tell their listeners."""
    runner, speaker = (
        AsyncGate(url=redis_cluster.url, cluster=True),
        Gate(url=redis_cluster.url, cluster=True),
    )
    assert await runner.run(verbs.holders(activity_id=42, sku_id=8)) == {}
    redis_cluster.kill(redis_cluster.ports[0])
    deadline = time.monotonic() + 30
    while True:
        stream = runner.subscribe(keys.EVENTS_PATTERN)
        try:
            assert await asyncio.wait_for(anext(stream), 20) == ("", b"")
            break
        except GateUnavailable:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)
    while True:
        try:
            await asyncio.to_thread(speaker.publish, keys.events_channel(42), b"hello")
            break
        except GateUnavailable:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)
    assert await asyncio.wait_for(anext(stream), 20) == (keys.events_channel(42), b"hello")
    await stream.aclose()
    await runner.close()
    speaker.close()


async def test_a_cluster_that_is_away_is_unavailable(redis_cluster, settings, monkeypatch) -> None:
    """Also before the first call: the client connects when it is made."""
    url = redis_cluster.url
    sync, other = Gate(url=url, cluster=True), AsyncGate(url=url, cluster=True)
    assert await other.run(verbs.holders(activity_id=42, sku_id=8)) == {}
    for port in redis_cluster.ports:
        redis_cluster.kill(port)
    for _ in range(2):  # the first meets closed connections, the second finds no server
        with pytest.raises(GateUnavailable):
            sync.run(verbs.holders(activity_id=42, sku_id=8))
        with pytest.raises(GateUnavailable):
            await other.run(verbs.holders(activity_id=42, sku_id=8))
    settings.REDIS_URL, settings.REDIS_CLUSTER = url, True
    monkeypatch.setattr("inventory.gate._gate", None)
    assert "does not answer" in readiness.look().blocking[0]
    sync.close()
    await other.close()


def _port(sale: int) -> int:
    return int(gate().server_of(keys.mark(sale)).rpartition(":")[2])


def _one_a_shard(cluster: RedisCluster) -> list[int]:
    found: dict[int, int] = {}
    for activity_id in range(100):
        found.setdefault(cluster.primary_of(keys.mark(activity_id)), activity_id)
    return list(found.values())

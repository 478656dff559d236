"""The product on a Redis Cluster of three shards: sales on two of them, one primary is killed."""

import json
import shutil
import urllib.request
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
import redis

from inventory import keys
from tests.fixtures.redis_cluster import RedisCluster
from tests.fixtures.system import Sale, System, answered, wait_until

pytestmark = pytest.mark.process


class ClusteredSystem(System):
    """A second product on the same servers, with a database, topics and a gate of its own."""

    cluster: RedisCluster

    def redis_of(self, activity: Sale) -> "redis.Redis[str]":
        port = self.cluster.primary_of(keys.mark(activity.activity_id))
        return redis.Redis(port=port, decode_responses=True)


@pytest.fixture
def clustered(system: System, redis_cluster: RedisCluster, tmp_path) -> Iterator[ClusteredSystem]:
    for role in list(system.processes):
        system.stop(role)
    made = ClusteredSystem(stack=system.stack, folder=tmp_path)
    made.cluster = redis_cluster
    urls = {n: u for n, u in system.stack.environment().items() if n.endswith("DATABASE_URL")}
    with psycopg.connect(urls["DATABASE_URL"], autocommit=True) as database:
        database.execute("CREATE DATABASE clustered")
    try:
        made.prepare(
            REDIS_URL=redis_cluster.url,
            SECKILL_REDIS_CLUSTER="1",
            SECKILL_TOPIC_PREFIX="CLUSTER_SECKILL_",
            **{n: urlunsplit(urlsplit(u)._replace(path="/clustered")) for n, u in urls.items()},
        )
        made.start_all()
        yield made
    finally:
        made.stop_all()
        with psycopg.connect(urls["DATABASE_URL"], autocommit=True) as database:
            database.execute("DROP DATABASE clustered WITH (FORCE)")
        shutil.rmtree(tmp_path, ignore_errors=True)


def test_a_shard_that_dies_stops_its_own_sale_until_its_replica_took_over(clustered) -> None:
    cluster = clustered.cluster
    hit = clustered.make_sale(stock=40)
    other = _on_another_shard(clustered, hit)
    before = clustered.crowd(hit, [f"early-{n}" for n in range(20)], retries=20)
    assert answered(before) == {202: 20}
    clustered.wait_orders(hit, 20)

    dead = cluster.primary_of(keys.mark(hit.activity_id))
    cluster.kill(dead)
    assert clustered.buy(hit, "unlucky").status == 503
    with urllib.request.urlopen(f"http://127.0.0.1:{clustered.port}/readyz", timeout=10) as got:
        ready = json.load(got)
    assert ready["degraded"], ready
    assert f"Redis at 127.0.0.1:{dead} does not answer" in ready["checks"]["redis"]
    # The other sale's buyers notice nothing that a retry does not mend.
    assert answered(clustered.crowd(other, [f"o-{n}" for n in range(30)], retries=50)) == {
        202: 20, 409: 10,
    }  # fmt: skip
    wait_until(
        lambda: cluster.primary_of(keys.mark(hit.activity_id)) != dead,
        timeout_s=20,
        what="the replica is the primary",
    )
    cluster.start(dead)  # as the replica that min-replicas-to-write asks for

    wait_until(
        lambda: clustered.buy(hit, "early-3", key=before[3].key).status != 503,
        timeout_s=30,
        what="the shard takes writes again",
    )
    again = clustered.buy(hit, "early-3", key=before[3].key)
    assert again.body["reservation_id"] == before[3].body["reservation_id"]
    late = clustered.crowd(hit, [f"late-{n}" for n in range(30)], retries=50)
    assert answered(late) == {202: 20, 409: 10}
    clustered.wait_orders(hit, 40)
    clustered.wait_orders(other, 20)
    for sale in (hit, other):
        clustered.audit(sale)


def _on_another_shard(clustered: ClusteredSystem, sale: Sale) -> Sale:
    there = clustered.cluster.primary_of(keys.mark(sale.activity_id))
    for _ in range(20):
        made = clustered.make_sale(stock=20)
        if clustered.cluster.primary_of(keys.mark(made.activity_id)) != there:
            return made
    pytest.fail("twenty sales on one shard of three")

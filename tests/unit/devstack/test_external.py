"""Servers of the user's own, and addresses of ours that came back through the environment."""

from __future__ import annotations

import socket

import pytest

from devstack import external, urls
from devstack.errors import ExternalUnreachable

OWN = {
    "DATABASE_URL": "postgresql://seckill:x@127.0.0.1:1/seckill",
    "REDIS_URL": "redis://127.0.0.1:2/0",
    "CACHE_URL": "redis://127.0.0.1:2/1",
    "CELERY_BROKER_URL": "redis://127.0.0.1:2/2",
    "ROCKETMQ_ENDPOINTS": "127.0.0.1:3",
    "ROCKETMQ_METRICS_URL": "http://127.0.0.1:4/metrics",
}


def test_our_own_addresses_are_not_external() -> None:
    assert external.from_environment(environ=OWN, own=OWN).services == frozenset()


def test_a_named_broker_replaces_the_three_rocketmq_services_and_all_our_addresses_of_it() -> None:
    environ = {"ROCKETMQ_ENDPOINTS": "mq:8081", "ROCKETMQ_NAMESRV": "mq:9876"}
    found = external.from_environment(environ=environ, own=OWN)
    assert found.services == {"namesrv", "broker", "proxy"}
    merged = urls.merged(own=OWN, external=found.urls)
    assert {k: v for k, v in merged.items() if k.startswith("ROCKETMQ_")} == environ
    assert merged["REDIS_URL"] == OWN["REDIS_URL"]


def test_a_named_redis_serves_cache_and_celery_too() -> None:
    found = external.from_environment(environ={"REDIS_URL": "redis://cache:6379/0"}, own=OWN)
    merged = urls.merged(own=OWN, external=found.urls)
    assert merged["CACHE_URL"] == "redis://cache:6379/1"
    assert merged["CELERY_BROKER_URL"] == "redis://cache:6379/2"


def test_an_unreachable_server_is_one_line_that_says_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    address = {"DATABASE_URL": f"postgresql://u:p@127.0.0.1:{port}/x"}
    with pytest.raises(ExternalUnreachable) as caught:
        external.from_environment(environ=address, own={}).check()
    assert f"127.0.0.1:{port}" in str(caught.value)
    assert "unset it" in str(caught.value)
    assert "u:p" not in str(caught.value)


def test_a_reachable_server_passes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = {"ROCKETMQ_ENDPOINTS": f"127.0.0.1:{server.getsockname()[1]}"}
        external.from_environment(environ=address, own={}).check()

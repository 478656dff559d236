"""The contract runs on both brokers; topics and groups of each test are its own."""

from collections.abc import Iterator

import pytest

from messaging import topology
from tests.contract.broker.harness import Harness, MemoryHarness, RocketMQHarness


@pytest.fixture
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology, "_TOPICS", dict(topology._TOPICS))
    monkeypatch.setattr(topology, "_GROUPS", dict(topology._GROUPS))


@pytest.fixture
def real(_own_registry: None, provisioned: str) -> RocketMQHarness:
    """The real broker."""
    return RocketMQHarness()


@pytest.fixture(params=["memory", "rocketmq"])
def port(request: pytest.FixtureRequest, _own_registry: None) -> Iterator[Harness]:
    """Each broker in turn."""
    if request.param == "memory":
        yield MemoryHarness()
    else:
        yield request.getfixturevalue("real")

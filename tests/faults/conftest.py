"""A broker that may be killed."""

import os
from collections.abc import Iterator

import pytest

from devstack.stack import Stack


@pytest.fixture(scope="module")
def private_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """RocketMQ alone: database and Redis are the shared ones, untouched here."""
    shared = {name: os.environ[name] for name in ("DATABASE_URL", "REDIS_URL")}
    stack = Stack(tmp_path_factory.mktemp("rocketmq"), environ=shared)
    stack.up()
    yield stack
    stack.down(force=True)  # nobody needs the data

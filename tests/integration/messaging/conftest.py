"""What the messaging tests share."""

from collections.abc import Callable, Iterator

import pytest

from messaging.broker.memory import MemoryBroker
from messaging.relay import Relay


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def make_relay() -> Iterator[Callable[..., Relay]]:
    made: list[Relay] = []

    def make(producer: object, **changes: object) -> Relay:
        relay = Relay(producer, **{"lease_s": 10.0, "timeout_ms": 1000, **changes})  # type: ignore[arg-type]
        made.append(relay)
        return relay

    yield make
    for relay in made:
        relay.close()

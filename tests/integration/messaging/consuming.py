"""A member of the order group that consumes in a thread."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from django.db import connections

from messaging.backpressure import QuarantineBreaker
from messaging.broker.memory import MemoryBroker
from messaging.consumer import GroupConsumer
from messaging.inflow import LoopOptions
from messaging.pace import PaceOf
from messaging.pulse import Pulse
from messaging.topology import CG_ORDER_CREATE, group_spec
from messaging.worker import StopSignal
from tests.integration.messaging.messages import OPTIONS

GROUP = group_spec(CG_ORDER_CREATE)
SHORT = replace(OPTIONS, invisible_s=1, min_left_s=0.1)


@contextmanager
def consuming(
    broker: MemoryBroker,
    handler: object,
    *,
    options: LoopOptions = OPTIONS,
    breaker: QuarantineBreaker | None = None,
    pace: PaceOf | None = None,
) -> Iterator[Pulse]:
    """A member of the group, in a thread, stopped at the end."""
    stop, pulse = StopSignal(), Pulse()
    crashed: list[BaseException] = []

    def run() -> None:
        try:
            GroupConsumer(
                group=GROUP,
                handler=handler,  # type: ignore[arg-type]
                receiver=broker.receiver(group=GROUP.name, topic=GROUP.topic),
                stop=stop,
                pulse=pulse,
                options=options,
                breaker=breaker,
                pace=pace,
            ).run()
        except BaseException as error:
            crashed.append(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield pulse
    finally:
        stop.set()
        thread.join(10)
        assert not thread.is_alive()
        assert not crashed

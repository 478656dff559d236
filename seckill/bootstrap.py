"""The only wiring: which group is handled by what."""

from dlq_admin.capture.drain import drain_loops
from dlq_admin.replay.worker import replay_loops
from messaging.broker.base import Broker
from messaging.consumer import Handler
from messaging.topology import (
    CG_AUDIT,
    CG_INVENTORY_COMPENSATE,
    CG_ORDER_CREATE,
    CG_ORDER_PROJECTION,
    CG_ORDER_TIMEOUT,
)
from messaging.worker import Loop
from orders.archive import ARCHIVE_HANDLER
from orders.effects.registry import effect_handlers
from orders.handlers import (
    ORDER_CREATE_HANDLER,
    ORDER_TIMEOUT_HANDLER,
    PROJECTION_HANDLER,
    RELEASE_HANDLER,
)
from seckill.replay_pressure import pressure


def handlers() -> dict[str, Handler]:
    """Return the handler of each enabled consumer group, by its registry name."""
    return {
        CG_ORDER_CREATE: ORDER_CREATE_HANDLER,
        CG_ORDER_TIMEOUT: ORDER_TIMEOUT_HANDLER,
        CG_INVENTORY_COMPENSATE: RELEASE_HANDLER,
        CG_ORDER_PROJECTION: PROJECTION_HANDLER,
        CG_AUDIT: ARCHIVE_HANDLER,
        **effect_handlers(),
    }


def dlq_drain(broker: Broker, *, once: bool = False) -> list[Loop]:
    """Return the loops of a drain process: every dead letter topic, and our own quarantine."""
    return drain_loops(broker, once=once)


def replayer(*, once: bool = False) -> list[Loop]:
    """Return the loop of a replay process: it asks the governor how much it may take."""
    return replay_loops(pressure=pressure, once=once)

"""The only wiring: which group is handled by what."""

from messaging.consumer import Handler
from messaging.topology import (
    CG_AUDIT,
    CG_INVENTORY_COMPENSATE,
    CG_ORDER_CREATE,
    CG_ORDER_PROJECTION,
    CG_ORDER_TIMEOUT,
)
from orders.archive import ARCHIVE_HANDLER
from orders.effects.registry import effect_handlers
from orders.handlers import (
    ORDER_CREATE_HANDLER,
    ORDER_TIMEOUT_HANDLER,
    PROJECTION_HANDLER,
    RELEASE_HANDLER,
)


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

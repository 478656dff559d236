"""States of an activity, its gate and its operations (pure; docs/states.md is made of them)."""

from enum import StrEnum
from typing import Final


class ActivityStatus(StrEnum):
    """What PostgreSQL says about a sale. The gate follows."""

    DRAFT = "DRAFT"
    WARM = "WARM"  # stock is in the gate, never opened yet
    OPEN = "OPEN"
    PAUSED = "PAUSED"
    CLOSED = "CLOSED"
    SETTLED = "SETTLED"


ACTIVITY_ALLOWED: Final[dict[ActivityStatus, frozenset[ActivityStatus]]] = {
    ActivityStatus.DRAFT: frozenset({ActivityStatus.WARM}),
    ActivityStatus.WARM: frozenset({ActivityStatus.OPEN, ActivityStatus.CLOSED}),
    ActivityStatus.OPEN: frozenset({ActivityStatus.PAUSED, ActivityStatus.CLOSED}),
    ActivityStatus.PAUSED: frozenset({ActivityStatus.OPEN, ActivityStatus.CLOSED}),
    ActivityStatus.CLOSED: frozenset({ActivityStatus.OPEN, ActivityStatus.SETTLED}),
    ActivityStatus.SETTLED: frozenset(),
}


class GateStatus(StrEnum):
    """`status` of a gate hash in Redis."""

    OPEN = "OPEN"
    PAUSED = "PAUSED"
    CLOSED = "CLOSED"
    REBUILDING = "REBUILDING"


class GateReservationStatus(StrEnum):
    """`status` of a reservation hash in Redis."""

    RESERVED = "RESERVED"
    CONFIRMED = "CONFIRMED"
    RELEASED = "RELEASED"


GATE_RESERVATION_ALLOWED: Final[dict[GateReservationStatus, frozenset[GateReservationStatus]]] = {
    GateReservationStatus.RESERVED: frozenset(
        {GateReservationStatus.CONFIRMED, GateReservationStatus.RELEASED}
    ),
    GateReservationStatus.CONFIRMED: frozenset({GateReservationStatus.RELEASED}),
    GateReservationStatus.RELEASED: frozenset(),
}


class MqStatus(StrEnum):
    """`mq_status` of a reservation hash. That somebody is sending is a lease, not a state."""

    MQ_PENDING = "MQ_PENDING"
    MQ_SENT = "MQ_SENT"


class OperationKind(StrEnum):
    """What an operator asked of a sale."""

    WARM_UP = "WARM_UP"
    OPEN = "OPEN"
    PAUSE = "PAUSE"
    RESUME = "RESUME"
    CLOSE = "CLOSE"
    STOP = "STOP"  # emergency stop
    TOP_UP = "TOP_UP"
    CUT = "CUT"
    EDIT = "EDIT"  # window and limits


class OperationStatus(StrEnum):
    """Life of a gate operation: the row is the intent, the scanner drives it to DONE."""

    REQUESTED = "REQUESTED"
    DONE = "DONE"
    REFUSED = "REFUSED"  # overtaken by a newer change, or a cut of nothing


OPERATION_ALLOWED: Final[dict[OperationStatus, frozenset[OperationStatus]]] = {
    OperationStatus.REQUESTED: frozenset({OperationStatus.DONE, OperationStatus.REFUSED}),
    OperationStatus.DONE: frozenset(),
    OperationStatus.REFUSED: frozenset(),
}


class RebuildStatus(StrEnum):
    """Life of a rebuild run."""

    RUNNING = "RUNNING"
    DONE = "DONE"
    OVERTAKEN = "OVERTAKEN"  # a newer run began: this one writes nothing any more


REBUILD_ALLOWED: Final[dict[RebuildStatus, frozenset[RebuildStatus]]] = {
    RebuildStatus.RUNNING: frozenset({RebuildStatus.DONE, RebuildStatus.OVERTAKEN}),
    RebuildStatus.DONE: frozenset(),
    RebuildStatus.OVERTAKEN: frozenset(),
}


class LedgerKind(StrEnum):
    """Why units moved. `source_id` + kind is unique: a move is booked once."""

    INITIAL = "INITIAL"  # + source: sku id
    TOP_UP = "TOP_UP"  # + source: operation id
    CUT = "CUT"  # - source: operation id
    SALE = "SALE"  # - source: order id
    RESTOCK = "RESTOCK"  # + source: order id (cancelled or refunded, sold again)
    WITHHELD = "WITHHELD"  # 0 to available, units leave the sale; source: order id

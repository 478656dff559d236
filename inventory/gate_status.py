"""What the gate of a sale really is, beside what PostgreSQL wants it to be."""

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from inventory import verbs
from inventory.contracts import GateState
from inventory.errors import GateUnavailable
from inventory.gate import gate
from inventory.metrics import GATE_LOST
from inventory.selectors import ActivityRecord, SkuRecord, activity_record

log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class GateReport:
    """State of all gates of a sale.

    `condition` is UNREACHABLE, NOT_LOADED (never opened, no keys), GATE_LOST, or the status that
    the gates share (MIXED when they do not).
    """

    condition: str
    gates: tuple[GateState | None, ...]

    def by_sku(self, record: ActivityRecord) -> list[tuple[SkuRecord, GateState | None]]:
        """Return each SKU of the sale beside its gate, None when it has none or was not read."""
        states = self.gates or (None,) * len(record.skus)
        return list(zip(record.skus, states, strict=True))


def is_lost(record: ActivityRecord, state: GateState | None) -> bool:
    """Return whether a sale that was opened once has lost this gate.

    Lost is also a gate without stock, and one of another epoch: what was sold is not in it.
    """
    if record.opened_at is None:
        return False
    if state is None or state.stock < 0:
        return True
    epochs = {sku.sku_id: sku.epoch for sku in record.skus}
    return state.epoch != epochs[state.sku_id] and state.rebuild_run == 0


def is_postgres_older(record: ActivityRecord, states: Sequence[GateState | None]) -> bool:
    """Return whether a gate has seen a rebuild that PostgreSQL knows nothing of.

    Run numbers and epochs stand in PostgreSQL before they reach a gate: one that is ahead means
    that PostgreSQL came back from an older copy. Orders are missing then, and nothing may be sold.

    Args:
        record: the sale, of before or after `states` was read.
        states: its gates.

    Cost: nothing, four statements when a gate seems ahead.
    """
    if not _is_ahead(record, states):
        return False
    again = activity_record(record.activity_id)  # younger than the gates: no rebuild came between
    return again is not None and _is_ahead(again, states)


def _is_ahead(record: ActivityRecord, states: Sequence[GateState | None]) -> bool:
    if record.opened_at is None:
        return False
    epochs = {sku.sku_id: sku.epoch for sku in record.skus}
    return any(
        max(state.rebuild_run, state.rebuild_seen) > record.rebuild_run
        # One that is closed by a run gets its epoch from that run.
        or (state.epoch > epochs[state.sku_id] and state.rebuild_run == 0)
        for state in states
        if state is not None
    )


def report_gate(record: ActivityRecord) -> GateReport:
    """Read all gates of a sale and judge them; a loss is logged as an alert and counted."""
    try:
        states = tuple(
            gate().run(verbs.gate_state(activity_id=record.activity_id, sku_id=sku.sku_id))
            for sku in record.skus
        )
    except GateUnavailable:
        return GateReport(condition="UNREACHABLE", gates=())
    lost = any(is_lost(record, state) for state in states)
    if record.opened_at is not None:
        GATE_LOST.labels(str(record.activity_id)).set(1 if lost else 0)
    if lost:
        alert_lost(record.activity_id)
        return GateReport(condition="GATE_LOST", gates=states)
    statuses = {state.status if state else "NOT_LOADED" for state in states}
    return GateReport(
        condition=statuses.pop() if len(statuses) == 1 else "MIXED",
        gates=states,
    )


def alert_lost(activity_id: int) -> None:
    """Log and count that a sale's gate is gone; only `rebuild_gate` brings it back."""
    GATE_LOST.labels(str(activity_id)).set(1)
    log.error(
        "gate lost",
        alert="GATE_LOST",
        activity_id=activity_id,
        action="the sale answers 503 until rebuild_gate has run",
    )

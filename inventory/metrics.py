"""Metrics of inventory; names and meanings in docs/metrics.md."""

from typing import Final

from prometheus_client import Counter, Gauge

CONDITION_UPDATE_MISS: Final = Counter(
    "inventory_condition_update_miss_total",
    "Conditional updates of the final stock that found too few units: the gate promised too much.",
)
GATE_LOST: Final = Gauge(
    "inventory_gate_lost",
    "1 while a sale that was opened once has no gate in Redis.",
    ["activity_id"],
    multiprocess_mode="mostrecent",
)
OPERATIONS: Final = Counter(
    "inventory_gate_operations_total",
    "Operators' changes of running sales that came to an end.",
    ["kind", "result"],
)

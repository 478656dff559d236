"""Metrics of the capture. Depth and age of the dead (`mq_dlq_messages`) are messaging's own."""

from typing import Final

from prometheus_client import Counter, Gauge

TICKETS_OPEN: Final = Gauge(
    "mq_dlq_tickets_open",
    "Open tickets of the DLQ console.",
    ["severity"],
    multiprocess_mode="mostrecent",
)
CAPTURED: Final = Counter("mq_dlq_captured_total", "Dead messages taken to the desk.", ["source"])
SETTLED: Final = Counter(
    "mq_dlq_settled_total", "Dead messages that closed by themselves: their effect was there."
)
DRAIN_FAILURE: Final = Counter(
    "mq_dlq_drain_failure_total", "Rounds of the drain that failed.", ["part"]
)

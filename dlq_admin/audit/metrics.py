"""The metric of the audit record: names as in docs/metrics.md."""

from typing import Final

from prometheus_client import Gauge

FINDINGS: Final = Gauge(
    "dlq_audit_findings",
    "Audit events and anchors that the last verification found changed or gone; 0 is good.",
    multiprocess_mode="livemax",
)

"""Tables of the console; used inside this app only."""

from dlq_admin.models.audit import AuditAnchor, AuditEvent, AuditHead
from dlq_admin.models.message import DlqMessage, DlqOccurrence, FailureGroup
from dlq_admin.models.replay import (
    Approval,
    BreakGlass,
    DryRun,
    InvariantRun,
    ReplayBatch,
    ReplayItem,
)
from dlq_admin.models.submission import Submission
from dlq_admin.models.ticket import SlaClock, Ticket

__all__ = [
    "Approval",
    "AuditAnchor",
    "AuditEvent",
    "AuditHead",
    "BreakGlass",
    "DlqMessage",
    "DlqOccurrence",
    "DryRun",
    "FailureGroup",
    "InvariantRun",
    "ReplayBatch",
    "ReplayItem",
    "SlaClock",
    "Submission",
    "Ticket",
]

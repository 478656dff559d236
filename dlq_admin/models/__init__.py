"""Rows of the console."""

from dlq_admin.models.audit import AuditAnchor, AuditEvent, AuditHead
from dlq_admin.models.message import DlqMessage, FailureGroup
from dlq_admin.models.replay import (
    Approval,
    DryRun,
    InvariantRun,
    ReplayBatch,
    ReplayItem,
)
from dlq_admin.models.ticket import Ticket

__all__ = [
    "Approval",
    "AuditAnchor",
    "AuditEvent",
    "AuditHead",
    "DlqMessage",
    "DryRun",
    "FailureGroup",
    "InvariantRun",
    "ReplayBatch",
    "ReplayItem",
    "Ticket",
]

"""Tickets: every move of their life, each with its guard, its permission and its audit event."""

from dlq_admin.tickets.classify import begin_fix, classify, make_ready, send_back
from dlq_admin.tickets.close import close, why_not_close
from dlq_admin.tickets.discard import approve_discard, refuse_discard, request_discard
from dlq_admin.tickets.merge import merge
from dlq_admin.tickets.replaying import items_finished, items_started
from dlq_admin.tickets.triage import acknowledge, assign, park, reopen, resume

__all__ = [
    "acknowledge",
    "approve_discard",
    "assign",
    "begin_fix",
    "classify",
    "close",
    "items_finished",
    "items_started",
    "make_ready",
    "merge",
    "park",
    "refuse_discard",
    "reopen",
    "request_discard",
    "resume",
    "send_back",
    "why_not_close",
]

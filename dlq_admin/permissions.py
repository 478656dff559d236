"""Every permission of the console, and which role has it (pure).

Services check them themselves, per row: a page that hides a button protects nothing. All live on
one content type (`dlq_admin.ticket`, made by migration 0001).
"""

from typing import Final

_APP: Final = "dlq_admin"

# Seeing.
VIEW_CONSOLE: Final = f"{_APP}.view_console"
VIEW_PAYLOAD_MASKED: Final = f"{_APP}.view_payload_masked"
VIEW_PAYLOAD_LIMITED: Final = f"{_APP}.view_payload_limited"
VIEW_PAYLOAD_FULL: Final = f"{_APP}.view_payload_full"

# Tickets.
TRIAGE_TICKET: Final = f"{_APP}.triage_ticket"
CLASSIFY_TICKET: Final = f"{_APP}.classify_ticket"
CLOSE_TICKET: Final = f"{_APP}.close_ticket"
DISCARD_MESSAGE: Final = f"{_APP}.discard_message"
APPROVE_DISCARD: Final = f"{_APP}.approve_discard"

# Replays.
PLAN_REPLAY: Final = f"{_APP}.plan_replay"
EDIT_PAYLOAD: Final = f"{_APP}.edit_payload"
REQUEST_REPLAY: Final = f"{_APP}.request_replay"
APPROVE_REPLAY: Final = f"{_APP}.approve_replay"
APPROVE_SECOND_LEVEL: Final = f"{_APP}.approve_second_level"
PAUSE_REPLAY: Final = f"{_APP}.pause_replay"
RESUME_REPLAY: Final = f"{_APP}.resume_replay"
ABORT_REPLAY: Final = f"{_APP}.abort_replay"
OVERRIDE_REPLAY: Final = f"{_APP}.override_replay"
BREAK_GLASS: Final = f"{_APP}.break_glass"

# Audit.
VIEW_AUDIT: Final = f"{_APP}.view_audit"
EXPORT_AUDIT: Final = f"{_APP}.export_audit"
VERIFY_AUDIT: Final = f"{_APP}.verify_audit"

PERMISSIONS: Final[dict[str, str]] = {
    VIEW_CONSOLE: "Can see the DLQ console",
    VIEW_PAYLOAD_MASKED: "Can see payloads with personal data masked",
    VIEW_PAYLOAD_LIMITED: "Can see payloads without masking of business ids",
    VIEW_PAYLOAD_FULL: "Can see full payloads; every look is audited",
    TRIAGE_TICKET: "Can acknowledge, assign, merge, park and reopen tickets",
    CLASSIFY_TICKET: "Can decide on cause, disposition and readiness",
    CLOSE_TICKET: "Can close a verified ticket",
    DISCARD_MESSAGE: "Can ask for messages to be discarded",
    APPROVE_DISCARD: "Can approve a discard somebody else asked for",
    PLAN_REPLAY: "Can plan a replay (dry run)",
    EDIT_PAYLOAD: "Can edit a dead message before its replay",
    REQUEST_REPLAY: "Can ask for a plan to be approved",
    APPROVE_REPLAY: "Can approve a plan somebody else asked for",
    APPROVE_SECOND_LEVEL: "Can give the second approval",
    PAUSE_REPLAY: "Can pause a batch and change its rate",
    RESUME_REPLAY: "Can resume a paused batch",
    ABORT_REPLAY: "Can abort a batch",
    OVERRIDE_REPLAY: "Can approve a third replay of a message, or one past its end",
    BREAK_GLASS: "Can start a plan at once and be approved within the hour",
    VIEW_AUDIT: "Can read the audit trail",
    EXPORT_AUDIT: "Can export the audit trail",
    VERIFY_AUDIT: "Can verify the audit chain",
}

VIEWER: Final = "dlq viewer"
OPERATOR: Final = "dlq operator"
APPROVER: Final = "dlq approver"
INCIDENT_LEAD: Final = "dlq incident lead"
AUDITOR: Final = "dlq auditor"

_SEE: Final = frozenset({VIEW_CONSOLE, VIEW_PAYLOAD_MASKED})

# Groups of django.contrib.auth, made by a migration. Nobody's own approval is ever valid, whatever
# permissions a person collects: the services and the database compare the two people.
ROLES: Final[dict[str, frozenset[str]]] = {
    VIEWER: _SEE,
    OPERATOR: _SEE
    | {
        VIEW_PAYLOAD_LIMITED,
        TRIAGE_TICKET,
        CLASSIFY_TICKET,
        CLOSE_TICKET,
        DISCARD_MESSAGE,
        PLAN_REPLAY,
        EDIT_PAYLOAD,
        REQUEST_REPLAY,
        PAUSE_REPLAY,
        ABORT_REPLAY,
    },
    APPROVER: _SEE | {VIEW_PAYLOAD_LIMITED, APPROVE_REPLAY, PAUSE_REPLAY, VIEW_AUDIT},
    INCIDENT_LEAD: _SEE
    | {
        VIEW_PAYLOAD_LIMITED,
        VIEW_PAYLOAD_FULL,
        TRIAGE_TICKET,
        CLASSIFY_TICKET,
        CLOSE_TICKET,
        APPROVE_DISCARD,
        APPROVE_REPLAY,
        APPROVE_SECOND_LEVEL,
        PAUSE_REPLAY,
        RESUME_REPLAY,
        ABORT_REPLAY,
        OVERRIDE_REPLAY,
        BREAK_GLASS,
        VIEW_AUDIT,
    },
    AUDITOR: frozenset({VIEW_CONSOLE, VIEW_PAYLOAD_MASKED, VIEW_AUDIT, EXPORT_AUDIT, VERIFY_AUDIT}),
}


def codename(permission: str) -> str:
    """Return the part after the dot, as `Meta.permissions` and `Permission.codename` have it."""
    return permission.partition(".")[2]

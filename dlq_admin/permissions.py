"""Permissions of the console and the roles that have them; checked in every service."""

from typing import TYPE_CHECKING, Final

from django.core.exceptions import PermissionDenied

if TYPE_CHECKING:
    from django.contrib.auth.models import User

VIEW_DLQ: Final = "dlq_admin.view_dlq"
TRIAGE_TICKET: Final = "dlq_admin.triage_ticket"
CLASSIFY_TICKET: Final = "dlq_admin.classify_ticket"
CLOSE_TICKET: Final = "dlq_admin.close_ticket"
DISCARD_MESSAGE: Final = "dlq_admin.discard_message"
APPROVE_DISCARD: Final = "dlq_admin.approve_discard"
PLAN_REPLAY: Final = "dlq_admin.plan_replay"
REQUEST_REPLAY: Final = "dlq_admin.request_replay"
APPROVE_REPLAY: Final = "dlq_admin.approve_replay"
SECOND_LEVEL: Final = "dlq_admin.second_level"
PAUSE_REPLAY: Final = "dlq_admin.pause_replay"
RESUME_REPLAY: Final = "dlq_admin.resume_replay"
ABORT_REPLAY: Final = "dlq_admin.abort_replay"
VIEW_PAYLOAD: Final = "dlq_admin.view_payload"
VIEW_AUDIT: Final = "dlq_admin.view_audit"
EXPORT_AUDIT: Final = "dlq_admin.export_audit"


def has(user: "User", permission: str) -> bool:
    """Tell whether a user may."""
    return bool(user.is_active and user.has_perm(permission))


def require(user: "User", permission: str) -> None:
    """Raise PermissionDenied unless the user may."""
    if not has(user, permission):
        raise PermissionDenied(permission)

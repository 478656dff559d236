"""How much of a body a person sees: nothing, masked, limited, or all of it, each by permission.

All of it is asked for, by POST, and every look is an event of the audit record.
"""

from dataclasses import dataclass
from typing import Any, Final

import msgspec
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest

from dlq_admin import permissions
from dlq_admin.audit import record
from dlq_admin.pages.acts import missing_permission
from dlq_admin.pages.guard import acting_user
from dlq_admin.replay.editing import LOCKED
from dlq_admin.selectors.messages import MessageView
from messaging.masking import masked_body

_SHOWN: Final = 64_000
# Whoever sees a body without the masking of business data still sees no person in it.
_PERSONAL: Final = frozenset({"user_id", "name", "email", "phone", "address", "note"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Payload:
    """A body as a person may see it; `text` is None when he may not."""

    level: str
    text: str | None
    why: str = ""
    may_reveal: bool = False
    reveal_why: str = ""


def shown_payload(request: HttpRequest, message: MessageView) -> Payload:
    """Return what a person sees without asking."""
    why_full = missing_permission(request, permissions.VIEW_PAYLOAD_FULL)
    more: dict[str, Any] = {
        "may_reveal": not why_full,
        "reveal_why": f"the whole body {why_full}" if why_full else "",
    }
    if not missing_permission(request, permissions.VIEW_PAYLOAD_LIMITED):
        return Payload(level="limited: no personal data", text=_limited(message.body), **more)
    why = missing_permission(request, permissions.VIEW_PAYLOAD_MASKED)
    if why:
        return Payload(level="none", text=None, why=why, **more)
    return Payload(level="masked", text=masked_body(message.body), **more)


def whole_payload(request: HttpRequest, message: MessageView) -> Payload:
    """Return the whole body, and record that this person has seen it.

    Raises:
        PermissionDenied: the user may not.
    """
    user = acting_user(request)
    if not user.has_perm(permissions.VIEW_PAYLOAD_FULL):
        raise PermissionDenied(permissions.VIEW_PAYLOAD_FULL)
    with transaction.atomic(durable=True):
        record(
            ticket_id=message.ticket_id,
            kind="PAYLOAD_VIEWED",
            actor=user,
            detail={"message_id": message.message_id, "sha256": message.body_sha256},
        )
    return Payload(level="whole: your look is recorded", text=_readable(message.body))


def editable_part(body: bytes) -> str:
    """Return the fields of a body that may be edited, as JSON; empty when it is no JSON object."""
    fields = _fields(body)
    if fields is None:
        return ""
    free = {name: value for name, value in fields.items() if name not in LOCKED}
    return msgspec.json.format(msgspec.json.encode(free), indent=2).decode()


def with_edited_part(body: bytes, edited: dict[str, Any]) -> bytes:
    """Return a body with its free fields replaced by what was edited; locked ones stay.

    A locked name in `edited` is taken over as well: the service refuses it by name.
    """
    fields = _fields(body) or {}
    kept = {name: value for name, value in fields.items() if name in LOCKED or name in edited}
    return msgspec.json.encode(kept | edited)


def _limited(body: bytes) -> str:
    fields = _fields(body)
    if fields is None:
        return f"{len(body)} bytes that are no JSON object"
    return msgspec.json.format(msgspec.json.encode(_without_people(fields)), indent=2).decode()[
        :_SHOWN
    ]


def _without_people(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _without_people(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_people(item, name) for item in value]
    return "***" if name in _PERSONAL and value is not None else value


def _readable(body: bytes) -> str:
    """Return a body as text: indented when it is JSON, bytes that are no text as escapes."""
    try:
        text = msgspec.json.format(body, indent=2).decode()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        text = body.decode("utf-8", "backslashreplace")
    return text[:_SHOWN]


def _fields(body: bytes) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None

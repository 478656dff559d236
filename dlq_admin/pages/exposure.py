"""How much of a body a person sees: nothing, masked, limited, or all of it, each by permission.

All of it is asked for, by POST, and every look is an event of the audit record. What a page shows
by itself (the body, the form of an edit, the difference that an edit made) is masked alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest

from dlq_admin import permissions
from dlq_admin.audit import record
from dlq_admin.errors import GuardRefused
from dlq_admin.pages.acts import missing_permission
from dlq_admin.pages.guard import acting_user
from dlq_admin.replay.editing import LOCKED
from dlq_admin.replay.selectors import BatchView, ItemView
from dlq_admin.selectors.messages import MessageView
from messaging.masking import masked, masked_body

HIDDEN: Final = "***"
_SHOWN: Final = 64_000
_Hide = Callable[[Any, str], Any]  # (value, its field's name) → what of it may be read
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
    seen = {"message_id": message.message_id, "sha256": message.body_sha256}
    _record_looks(request, message.ticket_id, [seen])
    return Payload(level="whole: your look is recorded", text=_readable(message.body))


def editable_part(request: HttpRequest, body: bytes) -> str:
    """Return the fields of a body that may be edited, as JSON; empty when it is no JSON object.

    What this person may not read without asking is a star, for those who may ask, too: a page that
    is only read must not need an event.
    """
    fields = _fields(body)
    if fields is None:
        return ""
    try:
        free = msgspec.json.encode(_free(request, fields))
    except RecursionError:  # nested deeper than anybody edits
        return ""
    return msgspec.json.format(free, indent=2).decode()


def with_edited_part(request: HttpRequest, body: bytes, edited: dict[str, Any]) -> bytes:
    """Return a body with its free fields replaced by what was edited; locked ones stay.

    A star that was left where it stood is the hidden value. A locked name in `edited` is taken over
    as well: the service refuses it by name.

    Raises:
        GuardRefused: a star stands where nothing was hidden.
    """
    fields = _fields(body) or {}
    kept = {name: value for name, value in fields.items() if name in LOCKED or name in edited}
    return msgspec.json.encode(kept | _unstarred(edited, _free(request, fields), fields))


def shown_items(request: HttpRequest, items: Sequence[ItemView]) -> list[ItemView]:
    """Return a batch's items with as much of their edits as a person sees without asking."""
    hide = _hiding(request)
    return [replace(item, edit_diff=_difference(item, hide)) for item in items]


def whole_items(
    request: HttpRequest, batch: BatchView, items: Sequence[ItemView]
) -> list[ItemView]:
    """Return a batch's items with all of their edits, and record that this person has seen them.

    Raises:
        PermissionDenied: the user may not.
    """
    edited = [item for item in items if item.edit_diff]
    _record_looks(
        request,
        batch.ticket_id,
        [{"message_id": item.message_id, "edit_of_batch": batch.batch_id} for item in edited],
    )
    return list(items)


def _record_looks(
    request: HttpRequest, ticket_id: int | None, details: Sequence[dict[str, Any]]
) -> None:
    """Record each look at something whole; raise PermissionDenied unless this person may."""
    user = acting_user(request)
    if not user.has_perm(permissions.VIEW_PAYLOAD_FULL):
        raise PermissionDenied(permissions.VIEW_PAYLOAD_FULL)
    with transaction.atomic(durable=True):
        for detail in details:
            record(ticket_id=ticket_id, kind="PAYLOAD_VIEWED", actor=user, detail=detail)


def _difference(item: ItemView, hide: _Hide) -> list[dict[str, Any]] | None:
    """Return what an edit changed, with both values masked by the names on their path."""
    if item.edit_diff is None:
        return None
    shown = []
    for line in item.edit_diff:
        names = str(line["path"]).split(".")
        # Whatever lies below a person's field is personal, whatever its own name.
        name = next((one for one in names if one in _PERSONAL), names[-1])
        values = {side: hide(line[side], name) for side in ("before", "after")}
        shown.append({"path": line["path"], **values})
    return shown


def _hiding(request: HttpRequest) -> _Hide:
    """Return what hides the values that this person may not read without asking."""
    if not missing_permission(request, permissions.VIEW_PAYLOAD_LIMITED):
        return _without_people
    if not missing_permission(request, permissions.VIEW_PAYLOAD_MASKED):
        return masked
    return lambda value, name: None if value is None else HIDDEN


def _free(request: HttpRequest, fields: dict[str, Any]) -> dict[str, Any]:
    hide = _hiding(request)
    return {
        name: _starred(value, name, hide) for name, value in fields.items() if name not in LOCKED
    }


def _starred(value: Any, name: str, hide: _Hide) -> Any:
    """Return a value with a star for whatever is hidden of it.

    A list with anything hidden in it is one star: its places could not be told apart afterwards.
    """
    seen = hide(value, name)
    if isinstance(value, dict) and isinstance(seen, dict):
        return {key: _starred(item, key, hide) for key, item in value.items()}
    return value if seen == value else HIDDEN


def _unstarred(edited: Any, shown: Any, original: Any) -> Any:
    """Return what was typed, each star that stands where it stood replaced by what it hides."""
    if edited == HIDDEN:
        if shown == HIDDEN:
            return original
        raise GuardRefused(
            f"{HIDDEN} stands for a value that you do not see: leave it where it was, or write a"
            " value of your own"
        )
    if isinstance(edited, dict):
        seen = shown if isinstance(shown, dict) else {}
        known = original if isinstance(original, dict) else {}
        return {
            key: _unstarred(item, seen.get(key), known.get(key)) for key, item in edited.items()
        }
    if isinstance(edited, list) and edited != original:
        return [_unstarred(item, None, None) for item in edited]
    return edited


def _limited(body: bytes) -> str:
    fields = _fields(body)
    if fields is None:
        return f"{len(body)} bytes that are no JSON object"
    try:
        shown = msgspec.json.encode(_without_people(fields))
    except RecursionError:
        return f"{len(body)} bytes that are nested too deep to be shown"
    return msgspec.json.format(shown, indent=2).decode()[:_SHOWN]


def _without_people(value: Any, name: str = "") -> Any:
    if name in _PERSONAL and value is not None:
        return HIDDEN  # with all that lies below it
    if isinstance(value, dict):
        return {key: _without_people(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_people(item, name) for item in value]
    return value


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

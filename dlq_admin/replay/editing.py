"""Editing a dead message's body before its replay (pure): what may change, and the difference.

Who bought what, how much, and until when it is valid may never change; neither may any id.
"""

from typing import Any, Final

import msgspec

LOCKED: Final = frozenset(
    {
        "message_id", "message_key", "event_id", "aggregate_id", "aggregate_version", "request_id",
        "reservation_id", "order_id", "activity_id", "sku_id", "user_id", "quantity", "price_cents",
        "amount_cents", "currency", "reservation_created_at", "reservation_valid_until",
        "created_at", "occurred_at", "retry_count", "replay_count",
    }
)  # fmt: skip
_MAX_BYTES: Final = 262_144


class EditRefused(ValueError):
    """This edit is not allowed; the text says why, without the message's data."""


def edited_difference(*, original: bytes, edited: bytes) -> list[dict[str, Any]]:
    """Return what an edit changes: path, before, after.

    Args:
        original: the dead message's bytes.
        edited: the new body.

    Raises:
        EditRefused: it is no JSON object, changes nothing, or changes a locked field (one that
            cannot be read in the original may not be added either).
    """
    if len(edited) > _MAX_BYTES:
        raise EditRefused("the body is longer than a message may be")
    after = _object(edited, what="the edited body")
    try:
        before = _object(original, what="the original")
    except EditRefused:
        raise EditRefused(
            "the original is no JSON object: nothing shows that the ids stay the same"
        ) from None
    difference = _difference(before, after, "")
    if not difference:
        raise EditRefused("nothing was changed")
    locked = sorted({line["path"] for line in difference} & _locked_paths(difference))
    if locked:
        raise EditRefused(f"locked: {', '.join(locked)}")
    return difference


def _locked_paths(difference: list[dict[str, Any]]) -> set[str]:
    return {
        line["path"] for line in difference if LOCKED.intersection(str(line["path"]).split("."))
    }


def _object(body: bytes, *, what: str) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise EditRefused(f"{what} is no JSON") from None
    if not isinstance(value, dict):
        raise EditRefused(f"{what} is no JSON object")
    return value


def _difference(before: Any, after: Any, path: str) -> list[dict[str, Any]]:
    if isinstance(before, dict) and isinstance(after, dict):
        found = []
        for name in sorted(before.keys() | after.keys()):
            found += _difference(
                before.get(name, _NOTHING), after.get(name, _NOTHING), f"{path}.{name}".lstrip(".")
            )
        return found
    if type(before) is type(after) and before == after:
        return []
    # A whole subtree that comes or goes is told leaf by leaf, so that nothing locked hides in it.
    if isinstance(before, dict) or isinstance(after, dict):
        return _difference(
            before if isinstance(before, dict) else {},
            after if isinstance(after, dict) else {},
            path,
        ) or [{"path": path, "before": _shown(before), "after": _shown(after)}]
    return [{"path": path, "before": _shown(before), "after": _shown(after)}]


_NOTHING: Final = object()


def _shown(value: Any) -> Any:
    return None if value is _NOTHING else value

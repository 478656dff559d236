"""What ONE send attempt proves: the outcome table of docs/messaging.md (pure).

The rule behind it: only an answer that says "not stored" is a failure. Everything else that is
not a clean OK is UNKNOWN, and the same ids are sent again later.
"""

from collections.abc import Sequence
from typing import Final

from messaging.broker.base import FailureClass, SendOutcome, SendResult

OK: Final = 20_000
# Stored, but flush or replica came late; internal errors; proxy time-outs; odd successes.
_MAYBE_STORED: Final = frozenset({30_000, 40_800, 50_000, 50_001, 50_002, 50_400, 50_401, 50_402})
_TYPE_CONFLICT: Final = 40_014
_CLIENT_TYPE: Final = 40_015
_NOT_IMPLEMENTED: Final = 50_100
_CONFIGURATION_STATUS: Final = frozenset(
    {"UNIMPLEMENTED", "UNAUTHENTICATED", "PERMISSION_DENIED", "INVALID_ARGUMENT"}
)
# gRPC's own words when no connection could be made, so no stream was ever opened.
_NO_CONNECTION: Final = "failed to connect to all addresses"

CONFIRMED: Final = SendResult(outcome=SendOutcome.CONFIRMED, code="OK")


def unknown(code: str, detail: str = "") -> SendResult:
    """Return the result of an attempt that may or may not have been stored."""
    return SendResult(outcome=SendOutcome.UNKNOWN, code=code, detail=detail)


def failed(failure: FailureClass, code: str, detail: str = "") -> SendResult:
    """Return the result of an attempt that certainly was not stored."""
    return SendResult(
        outcome=SendOutcome.DEFINITE_FAILURE, failure=failure, code=code, detail=detail
    )


def failure_class(code: int) -> FailureClass | None:
    """Classify an answer code of the broker; None means that nothing is proven."""
    family = code // 100
    if code in _MAYBE_STORED:
        return None
    if code == 42_900:
        return FailureClass.LOAD
    if code in {_TYPE_CONFLICT, _CLIENT_TYPE, _NOT_IMPLEMENTED}:
        return FailureClass.CONFIGURATION
    if family in {401, 403, 404, 505}:
        return FailureClass.CONFIGURATION
    if family in {400, 413, 431}:
        return FailureClass.BAD_MESSAGE
    return None


def from_answer(
    *,
    sent_ids: Sequence[str],
    code: int,
    message: str,
    entries: Sequence[tuple[int, str]],
) -> SendResult:
    """Judge an answer.

    Args:
        sent_ids: the ids of the batch, in order.
        code: status of the whole answer.
        message: its text.
        entries: (status code, message id) of each entry. A stored batch has ONE entry whose id is
            all ids joined by commas.

    Returns:
        CONFIRMED only for one OK entry that names exactly what was sent.
    """
    if code == OK:
        if len(entries) == 1 and entries[0] == (OK, ",".join(sent_ids)):
            return CONFIRMED
        return unknown("ODD_ENTRIES", f"{len(entries)} entries for {len(sent_ids)} messages")
    failure = failure_class(code)
    return unknown(str(code), message) if failure is None else failed(failure, str(code), message)


def from_transport(*, status: str, detail: str) -> SendResult:
    """Judge a gRPC error, given the name of its status code and its text."""
    if status == "UNAVAILABLE" and _NO_CONNECTION in detail:
        return failed(FailureClass.RETRY_LATER, status, detail)
    if status in _CONFIGURATION_STATUS:
        return failed(FailureClass.CONFIGURATION, status, detail)
    return unknown(status, detail)

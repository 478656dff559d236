"""The common parts of every message body, and strict decoding (pure).

Instants are UTC RFC 3339 with milliseconds. The body never changes after it is built: live
counters travel in user properties. Unknown extra fields are allowed (later versions may add some),
everything else is strict: a bad body raises `PermanentError`, which becomes a quarantine row.
"""

from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Final, Generic, TypeVar

import msgspec

from messaging.errors import PermanentError

SCHEMA_VERSION: Final = 1
PRODUCER: Final = "seckill"
_ULID: Final = "[0-7][0-9A-HJKMNP-TV-Z]{25}"
# `\Z`, because `$` also matches before a line feed at the end.

RequestId = Annotated[str, msgspec.Meta(pattern=f"^req_{_ULID}\\Z")]
ReservationId = Annotated[str, msgspec.Meta(pattern=f"^rsv_{_ULID}\\Z")]
OrderId = Annotated[str, msgspec.Meta(pattern=f"^ord_{_ULID}\\Z")]
EventId = Annotated[str, msgspec.Meta(pattern=f"^evt_{_ULID}\\Z")]
UserId = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.:@-]{1,64}\Z")]
PositiveId = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Quantity = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Counter = Annotated[int, msgspec.Meta(ge=0)]
Instant = Annotated[
    str,
    msgspec.Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z\Z"),
]
TraceParent = Annotated[str, msgspec.Meta(pattern=r"^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}\Z")]


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """W3C trace context of the request that caused the message."""

    trace_id: str
    span_id: str
    traceparent: TraceParent


def trace_of(traceparent: str) -> Trace:
    """Split a traceparent header into the body's trace object."""
    _, trace_id, span_id, _ = traceparent.split("-")
    return Trace(trace_id=trace_id, span_id=span_id, traceparent=traceparent)


@lru_cache(maxsize=64)
def _second(epoch_s: int) -> str:
    return datetime.fromtimestamp(epoch_s, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S")


def format_instant(epoch_ms: int) -> str:
    """Format epoch milliseconds as RFC 3339 in UTC with milliseconds."""
    second, ms = divmod(epoch_ms, 1000)
    return f"{_second(second)}.{ms:03d}Z"


def parse_instant(text: str) -> datetime:
    """Parse what `format_instant` wrote; aware, UTC."""
    return datetime.fromisoformat(text)


def to_epoch_ms(instant: datetime) -> int:
    """Convert an aware datetime to epoch milliseconds, rounded down."""
    delta = instant - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1000 + delta.microseconds // 1000


class _Version(msgspec.Struct):
    schema_version: int


T = TypeVar("T", bound=msgspec.Struct)
_version_decoder: Final = msgspec.json.Decoder(_Version)


class StrictDecoder(Generic[T]):
    """Decodes one contract of one schema version, strictly."""

    def __init__(self, contract: type[T], *, event_types: frozenset[str]) -> None:
        self._decoder = msgspec.json.Decoder(contract)
        self._event_types = event_types
        self._instants = tuple(
            field.name for field in msgspec.structs.fields(contract) if field.type == Instant
        )

    def decode(self, body: bytes) -> T:
        """Decode a body.

        Raises:
            PermanentError: INVALID_JSON, SCHEMA_UNSUPPORTED or INVALID_EVENT.
        """
        try:
            message = self._decoder.decode(body)
        except msgspec.ValidationError as error:
            raise PermanentError(_refusal(body), str(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise PermanentError("INVALID_JSON", str(error)) from None
        if message.schema_version != SCHEMA_VERSION:  # type: ignore[attr-defined]
            raise PermanentError("SCHEMA_UNSUPPORTED", str(message.schema_version))  # type: ignore[attr-defined]
        if message.event_type not in self._event_types:  # type: ignore[attr-defined]
            raise PermanentError("INVALID_EVENT", "unknown event_type")
        for name in self._instants:
            _check_calendar(getattr(message, name))
        return message


def _check_calendar(instant: str) -> None:
    """The form was right: only the calendar can still say no (30 February)."""
    try:
        parse_instant(instant)
    except ValueError:
        raise PermanentError("INVALID_EVENT", "no such instant") from None


def _refusal(body: bytes) -> str:
    """Tell a body of another version from one that breaks the rules of this version."""
    try:
        version = _version_decoder.decode(body).schema_version
    except msgspec.MsgspecError:
        return "INVALID_EVENT"
    return "INVALID_EVENT" if version == SCHEMA_VERSION else "SCHEMA_UNSUPPORTED"

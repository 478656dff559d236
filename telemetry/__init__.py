"""Spans of purchases, written after the fact: while no exporter is configured nothing is paid.

A purchase is handled in batches by many processes, so a span is not an open object that travels:
who did a piece of work says afterwards when it began and ended, for each sampled purchase in its
batch. Span ids are drawn from what the work was (message, group, attempt), so that a redelivery, a
resend or a replay can link to the earlier attempt without having been told of it.

Only the OpenTelemetry API is used here; `telemetry.export` brings the SDK and an exporter when one
is configured. Source: docs/traces.md.
"""

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    set_span_in_context,
)

__all__ = [
    "Context", "Span", "SpanKind", "begin", "chosen", "emit", "enabled", "flush", "read",
    "recorded", "span_id", "switch",
]  # fmt: skip

_SAMPLED: Final = 1
_ODD: Final = frozenset("13579bdf")


@dataclass(frozen=True, slots=True)
class Context:
    """A W3C trace context: which trace, which span of it, and whether it is recorded."""

    trace_id: int
    span_id: int
    sampled: bool

    @property
    def traceparent(self) -> str:
        """The header's text."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{int(self.sampled):02x}"

    def at(self, other_span_id: int) -> "Context":
        """Return another span of the same trace."""
        return Context(self.trace_id, other_span_id, self.sampled)


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """A piece of work that is over.

    Args:
        name: what was done.
        context: the span's own trace and id.
        parent_id: span id of its parent in the same trace; 0 for the first span of a trace.
        start_ns: epoch nanoseconds.
        end_ns: epoch nanoseconds.
        kind: SERVER, PRODUCER, CONSUMER, CLIENT or INTERNAL.
        attributes: ids and outcomes, never personal data.
        links: earlier attempts at the same work.
        error: what went wrong, a stable code; empty when nothing did.
    """

    name: str
    context: Context
    parent_id: int
    start_ns: int
    end_ns: int
    kind: SpanKind = SpanKind.INTERNAL
    attributes: Mapping[str, str | int | float] = field(default_factory=dict)
    links: Sequence[Context] = ()
    error: str = ""


class WantedIds(threading.local):
    """The ids that the next span of this thread shall get; read by the exporter's id generator."""

    trace_id: int = 0
    span_id: int = 0


wanted: Final = WantedIds()
_tracer: Tracer | None = None
_ratio: float = 0.0
_flush: Callable[[], object] | None = None


def enabled() -> bool:
    """Tell whether spans go anywhere; ask before doing anything for them."""
    return _tracer is not None


def switch(
    tracer: Tracer | None, *, ratio: float = 1.0, flush: Callable[[], object] | None = None
) -> None:
    """Send spans to a tracer from now on, or nowhere.

    Args:
        tracer: one whose provider takes its ids from `wanted`.
        ratio: share of new purchases that are recorded, 0 to 1.
        flush: sends what is queued, in bounded time.
    """
    global _tracer, _ratio, _flush
    _tracer, _ratio, _flush = tracer, ratio, flush


def flush() -> None:
    """Send what is queued, before the process ends."""
    if _flush is not None:
        _flush()


def read(traceparent: str) -> Context | None:
    """Read a header; None when it is no W3C trace context of version 00."""
    parts = traceparent.split("-")
    if len(parts) != 4:
        return None
    try:
        return Context(int(parts[1], 16), int(parts[2], 16), bool(int(parts[3], 16) & _SAMPLED))
    except ValueError:
        return None


def recorded(traceparent: str) -> Context | None:
    """Read the header of a purchase that is recorded; None for any other, for one look's price."""
    return read(traceparent) if traceparent[-1:] in _ODD else None


def chosen() -> bool:
    """Roll the dice for a new purchase: is it recorded?

    A caller's flag is not obeyed: else every client could have all it does recorded.
    """
    return random.random() < _ratio  # noqa: S311 - not a secret


def begin(caller: Context | None) -> Context:
    """Return the context of a new purchase that is recorded: in the caller's trace, if any."""
    bits = random.getrandbits(192) | 1 << 64 | 1  # neither id may be zero
    return Context(
        trace_id=caller.trace_id if caller else bits >> 64,
        span_id=bits & (1 << 64) - 1,
        sampled=True,
    )


def span_id(*parts: object) -> int:
    """Draw a span id from what the work is: the same parts give the same id, in any process."""
    text = "\x1f".join(map(str, parts)).encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big") or 1


def emit(span: Span) -> None:
    """Hand a span to the exporter's queue; nothing when it is not sampled. Never blocks."""
    if _tracer is None or not span.context.sampled:
        return
    parent = set_span_in_context(NonRecordingSpan(_wire(span.context.at(span.parent_id))))
    wanted.trace_id, wanted.span_id = span.context.trace_id, span.context.span_id
    try:
        made = _tracer.start_span(
            span.name,
            context=parent,
            kind=span.kind,
            attributes=dict(span.attributes),
            links=[Link(_wire(link)) for link in span.links],
            start_time=span.start_ns,
        )
    finally:
        wanted.trace_id = wanted.span_id = 0
    if span.error:
        made.set_status(Status(StatusCode.ERROR, span.error))
    made.end(end_time=span.end_ns)


def _wire(context: Context) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED if context.sampled else TraceFlags.DEFAULT)
    return SpanContext(context.trace_id, context.span_id, is_remote=True, trace_flags=flags)

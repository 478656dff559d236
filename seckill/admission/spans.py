"""The first spans of a purchase: the request itself and its part of the gate's call.

Only while an exporter is configured, and then only for the sampled share of the requests that reach
the gate. Source: docs/traces.md.
"""

import asyncio
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import telemetry
from seckill.admission.problems import Answer
from telemetry import Context, Span, SpanKind

if TYPE_CHECKING:
    from inventory.contracts import Reservation
    from seckill.admission.purchase import Ticket

GATE = "reserve at the gate"


class RequestSpan:
    """The span of one request, from its way into the queue to its answer."""

    def __init__(self, context: Context, *, parent_id: int) -> None:
        self._context = context
        self._parent_id = parent_id
        self._start_ns = time.time_ns()

    async def over(self, answer: "asyncio.Future[Answer]") -> Answer:
        """Wait for the answer and write the span."""
        found = await answer
        telemetry.emit(
            Span(
                name="POST reservation",
                context=self._context,
                parent_id=self._parent_id,
                start_ns=self._start_ns,
                end_ns=time.time_ns(),
                kind=SpanKind.SERVER,
                attributes={"http.response.status_code": found.status, "seckill.code": found.code},
                error=found.code if found.status >= 500 else "",
            )
        )
        return found


def begin(ticket: "Ticket") -> RequestSpan | None:
    """Put a request's context on its ticket; return its span when it is recorded."""
    if not telemetry.enabled():
        return None
    if not telemetry.chosen():
        if ticket.traceparent:  # the caller's trace goes on, unrecorded
            ticket.traceparent = f"{ticket.traceparent[:-2]}00"
        return None
    caller = telemetry.read(ticket.traceparent) if ticket.traceparent else None
    context = telemetry.begin(caller)
    ticket.traceparent = context.traceparent
    return RequestSpan(context, parent_id=caller.span_id if caller else 0)


def reserved(reservations: Iterable["Reservation"], *, start_ns: int) -> None:
    """Write the gate's part of new reservations; the call served the whole batch."""
    if not telemetry.enabled():
        return
    end_ns = time.time_ns()
    for reservation in reservations:
        context: Context | None = telemetry.recorded(reservation.traceparent)
        if context is None:
            continue
        telemetry.emit(
            Span(
                name=GATE,
                context=context.at(telemetry.span_id("reserve", reservation.reservation_id)),
                parent_id=context.span_id,
                start_ns=start_ns,
                end_ns=end_ns,
                kind=SpanKind.CLIENT,
                attributes={
                    "db.system.name": "redis",
                    "seckill.reservation_id": reservation.reservation_id,
                    "seckill.activity_id": reservation.activity_id,
                    "seckill.sku_id": reservation.sku_id,
                },
            )
        )

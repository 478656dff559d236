"""One gathered batch of one activity: ids → reserve → send → answer → mark.

The rules that look odd are the protocol's (docs/protocol.md): ids are drawn once and never change;
a lost answer of the gate is asked for once more with the same ids; a send's time-out is UNKNOWN and
the reservation stays; only a definite failure of this first attempt may give back, and only by
the gate's compare-and-set; nobody is told 202 whose reservation was not seen alive.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import structlog
from ulid import ULID

import faultpoint
from inventory import verbs
from inventory.contracts import (
    GiveBackCode,
    GiveBackItem,
    Reservation,
    ReserveCode,
    ReserveReply,
    ReserveRequest,
)
from inventory.errors import GateUnavailable
from messaging.broker.base import AsyncProducer, FailureClass, SendOutcome
from messaging.publish_log import record_send
from orders.scan.resend import create_order_message
from seckill.admission import metrics, spans
from seckill.admission.answers import accepted, already_reserved, ended, live_status
from seckill.admission.breaker import Breaker
from seckill.admission.problems import Answer, ready

log = structlog.get_logger(__name__)
T = TypeVar("T")

_REFUSALS = {
    ReserveCode.SOLD_OUT: "SOLD_OUT",
    ReserveCode.REQUEST_CONFLICT: "REQUEST_CONFLICT",
    ReserveCode.NOT_STARTED: "NOT_STARTED",
    ReserveCode.ENDED: "ENDED",
    ReserveCode.CLOSED: "CLOSED",
    ReserveCode.LIMIT_EXCEEDED: "LIMIT_EXCEEDED",
    ReserveCode.BUSY: "BUSY",
}
# Codes that a repeat with the same ids may get for a reservation that the first call made.
_ALIVE = {ReserveCode.RESERVED, ReserveCode.ALREADY_RESERVED, ReserveCode.REQUEST_REPLAYED}


class Ticket:
    """A request that waits for its answer.

    `key` is the client's (or its token's), or empty. With a `refusal` (a problem's code) nothing
    new may be reserved: only who holds a reservation already is answered with it.
    """

    __slots__ = (
        "answer", "key", "passed_on", "quantity", "refusal", "sku_id", "traceparent", "user_id",
    )  # fmt: skip

    def __init__(
        self,
        *,
        sku_id: int,
        user_id: str,
        quantity: int,
        key: str,
        traceparent: str,
        answer: "asyncio.Future[Answer]",
        refusal: str = "",
    ) -> None:
        self.sku_id = sku_id
        self.user_id = user_id
        self.quantity = quantity
        self.key = key
        self.traceparent = traceparent
        self.refusal = refusal
        self.answer = answer
        self.passed_on = False  # waits for another request's send, or for word on its gate

    def resolve(self, answer: Answer) -> None:
        """Answer, unless that happened or the client is gone."""
        if not self.answer.done():
            self.answer.set_result(answer)


# A ticket, the key that names its request at the gate, and the reservation it got.
Mine = tuple[Ticket, str, Reservation]


class GateRunner(Protocol):
    """The part of AsyncGate that is used here."""

    async def run(self, call: "verbs.Call[T]") -> T:
        """Run one call within the deadline; GateUnavailable when what it did is unknown."""
        ...


class Purchases:
    """Runs batches.

    Args:
        gate: runner of the gate's calls.
        producer: sends to the broker in one attempt.
        lease_owner: this process's name; reservations are born leased to it.
        lease_ms: the lease, and a reservation's first next_retry_at.
        send_budget_ms: deadline of the batch send.
        on_empty: called with (activity, SKU) when the gate has no unit left.
        gate_missing: names the problem when the gate of (activity, SKU) has no keys; may take its
            time, no batch waits for it.
        reject_reason: the reason PostgreSQL has for a reservation's rejection, or None.
        accepted: called with (activity, user, key) for each named key that got a reservation.
    """

    def __init__(
        self,
        *,
        gate: GateRunner,
        producer: AsyncProducer,
        breaker: Breaker,
        lease_owner: str,
        lease_ms: int,
        send_budget_ms: int,
        on_empty: Callable[[tuple[int, int]], None],
        gate_missing: Callable[[tuple[int, int]], Awaitable[str]],
        reject_reason: Callable[[Reservation], Awaitable[str | None]],
        accepted: Callable[[int, str, str], None],
    ) -> None:
        self._gate = gate
        self._producer = producer
        self._breaker = breaker
        self._lease_owner = lease_owner
        self._lease_ms = lease_ms
        self._send_budget_ms = send_budget_ms
        self._on_empty = on_empty
        self._gate_missing = gate_missing
        self._reject_reason = reject_reason
        self._accepted = accepted
        # Reservation → the answer of the request whose send is under way here.
        self._sending: dict[str, asyncio.Future[Answer]] = {}
        self._asking: set[asyncio.Task[None]] = set()

    async def run(self, activity_id: int, tickets: list[Ticket]) -> None:
        """Answer every ticket of a batch, whatever happens. Never raises.

        Who asked for a gate without keys may be answered after the return.
        """
        if not self._breaker.allow():
            for ticket in tickets:
                ticket.resolve(ready("FAIL_CLOSED"))
            return
        requests = [_draw_ids(ticket) for ticket in tickets]
        for request, ticket in zip(requests, tickets, strict=True):
            self._sending[request.reservation_id] = ticket.answer
        try:
            await self._purchase(activity_id, tickets, requests)
        except Exception:
            # Whether something was reserved is unknown to the caller: the same key tells.
            log.exception("admission_batch_failed", activity_id=activity_id, size=len(tickets))
        finally:
            for request, ticket in zip(requests, tickets, strict=True):
                del self._sending[request.reservation_id]
                if not ticket.passed_on:
                    ticket.resolve(ready("RESULT_UNKNOWN"))

    async def _purchase(
        self, activity_id: int, tickets: list[Ticket], requests: list[ReserveRequest]
    ) -> None:
        faultpoint.hit("web.before_reserve")
        start_ns = time.time_ns()
        replies = await self._twice(
            verbs.reserve(
                activity_id=activity_id,
                requests=requests,
                lease_owner=self._lease_owner,
                lease_ms=self._lease_ms,
            )
        )
        if replies is None:
            return  # every ticket: RESULT_UNKNOWN
        faultpoint.hit("web.after_reserve")

        mine: list[Mine] = []
        lost: dict[int, list[Ticket]] | None = None  # by SKU
        for ticket, request, reply in zip(tickets, requests, replies, strict=True):
            if reply.stock_left == 0:
                self._on_empty((activity_id, ticket.sku_id))
            reservation = reply.reservation
            if (
                reservation is not None
                and reservation.reservation_id == request.reservation_id
                and reply.code in _ALIVE
            ):
                mine.append((ticket, request.idempotency_key, reservation))
            elif reply.code is ReserveCode.GATE_LOST:
                lost = lost or {}
                lost.setdefault(ticket.sku_id, []).append(ticket)
            else:
                self._refuse_or_repeat(activity_id, ticket, reply)
        if lost:
            self._ask_why(activity_id, lost)
        if mine:
            spans.reserved((reservation for _, _, reservation in mine), start_ns=start_ns)
            await self._send(activity_id, mine)

    async def _send(self, activity_id: int, mine: list[Mine]) -> None:
        """Send the batch once, answer, then mark what the broker confirmed."""
        started = time.perf_counter()
        messages = [create_order_message(reservation, send_attempt=1) for _, _, reservation in mine]
        result = await self._producer.send(messages, timeout_ms=self._send_budget_ms)
        metrics.BATCH_SIZE.observe(len(mine))
        record_send(messages, result, seconds=time.perf_counter() - started)
        faultpoint.hit("web.after_send")
        if result.outcome is SendOutcome.CONFIRMED:
            self._breaker.reset()
            for ticket, _, reservation in mine:
                self._accept(ticket, reservation, "QUEUED")
            try:
                await self._gate.run(
                    verbs.mark_sent(
                        activity_id=activity_id,
                        reservation_ids=[reservation.reservation_id for _, _, reservation in mine],
                        lease_owner=self._lease_owner,
                    )
                )
            except GateUnavailable:
                # The scanner sends them again, the same bytes: the inbox makes it one effect.
                metrics.MARK_LOST.inc(len(mine))
            faultpoint.hit("web.after_mark")
            return
        if result.outcome is SendOutcome.UNKNOWN:
            for ticket, _, reservation in mine:
                self._accept(ticket, reservation, "PENDING")
            return
        if result.failure is FailureClass.CONFIGURATION:
            self._breaker.trip()
        await self._give_back(activity_id, mine)

    async def _give_back(self, activity_id: int, mine: list[Mine]) -> None:
        """Undo the reservations of a definite failure, as far as they are still ours alone."""
        codes = await self._twice(
            verbs.give_back(
                activity_id=activity_id,
                items=[
                    GiveBackItem(
                        sku_id=reservation.sku_id,
                        reservation_id=reservation.reservation_id,
                        user_id=reservation.user_id,
                        quantity=reservation.quantity,
                        idempotency_key=key,
                    )
                    for _, key, reservation in mine
                ],
                lease_owner=self._lease_owner,
            )
        )
        if codes is None:
            return  # RESULT_UNKNOWN: never 202 without having seen it alive
        for (ticket, _, reservation), code in zip(mine, codes, strict=True):
            metrics.GIVE_BACK.labels(code.name).inc()
            if code is GiveBackCode.OK:
                ticket.resolve(ready("SEND_FAILED"))
            elif code is GiveBackCode.REFUSED:
                self._accept(ticket, reservation, "PENDING")  # the scanner owns it
            elif code is GiveBackCode.RELEASED:
                reason = await self._reject_reason(reservation)
                ticket.resolve(
                    ready("SEND_FAILED")
                    if reason is None
                    else ended(activity_id, reservation.reservation_id, reason)
                )
            # MISSING: RESULT_UNKNOWN

    def _refuse_or_repeat(self, activity_id: int, ticket: Ticket, reply: ReserveReply) -> None:
        """Answer a request that made no reservation of its own."""
        refusal = _REFUSALS.get(reply.code)
        reservation = reply.reservation
        if refusal is not None:
            asked_only = ticket.refusal and reply.code is ReserveCode.LIMIT_EXCEEDED
            ticket.resolve(ready(ticket.refusal if asked_only else refusal))
        elif reservation is None:
            log.error("reserve_reply_without_reservation", code=reply.code.name)
        elif reply.code is ReserveCode.RESERVATION_ENDED:
            ticket.resolve(
                ended(activity_id, reservation.reservation_id, reservation.reject_reason)
            )
        elif reply.code is ReserveCode.ALREADY_RESERVED or not reservation.status:
            # Also a repeated key whose hash is gone: no 202 for what was not seen alive.
            ticket.resolve(already_reserved(reservation))
        else:
            self._repeat(ticket, reservation)

    def _ask_why(self, activity_id: int, lost: dict[int, list[Ticket]]) -> None:
        """Begin to answer those whose gate has no keys: one question for each SKU.

        A task of its own: the question goes to PostgreSQL, and the batch holds one of the few slots
        of all sales.
        """
        for sku_id, tickets in lost.items():
            for ticket in tickets:
                ticket.passed_on = True
            task = asyncio.create_task(self._answer_lost((activity_id, sku_id), tickets))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    async def _answer_lost(self, key: tuple[int, int], tickets: list[Ticket]) -> None:
        code = "GATE_LOST"
        try:
            code = await self._gate_missing(key)
        except Exception:
            log.exception("gate_not_explained", activity_id=key[0], sku_id=key[1])
        finally:
            for ticket in tickets:
                ticket.resolve(ready(code))

    async def drain(self) -> None:
        """Wait for the answers that outlived their batches."""
        await asyncio.gather(*self._asking, return_exceptions=True)

    def _repeat(self, ticket: Ticket, reservation: Reservation) -> None:
        """Answer a repeated key: with the answer of the send under way here, else its state."""
        under_way = self._sending.get(reservation.reservation_id)
        if under_way is None:
            self._accept(ticket, reservation, live_status(reservation))
            return

        def pass_on(done: "asyncio.Future[Answer]") -> None:
            if done.cancelled():  # that client hung up: what the gate said is true all the same
                self._accept(ticket, reservation, live_status(reservation))
            else:
                ticket.resolve(done.result())

        # A callback, not an await: it may be a ticket of this very batch.
        ticket.passed_on = True
        under_way.add_done_callback(pass_on)

    def _accept(self, ticket: Ticket, reservation: Reservation, status: str) -> None:
        """Answer 202 with a reservation that was seen alive."""
        if ticket.key:
            self._accepted(reservation.activity_id, ticket.user_id, ticket.key)
        ticket.resolve(accepted(reservation, status))

    async def _twice(self, call: "verbs.Call[T]") -> T | None:
        """Run a repeatable call, once more when its answer is lost; None when that is lost, too."""
        for attempt in (1, 2):
            try:
                return await self._gate.run(call)
            except GateUnavailable as error:
                metrics.GATE_LOST_ANSWERS.inc()
                log.warning("gate_answer_lost", attempt=attempt, error=str(error))
        return None


def _draw_ids(ticket: Ticket) -> ReserveRequest:
    """Draw all ids of a purchase, once: one ULID, four prefixes."""
    ulid = str(ULID())
    return ReserveRequest(
        sku_id=ticket.sku_id,
        user_id=ticket.user_id,
        # Quantity 0 reserves nothing, whatever the gate's state: it only asks who holds what.
        quantity=0 if ticket.refusal else ticket.quantity,
        idempotency_key=ticket.key or ulid,
        fingerprint=f"{ticket.sku_id}:{ticket.quantity}",
        request_id=f"req_{ulid}",
        reservation_id=f"rsv_{ulid}",
        order_id=f"ord_{ulid}",
        message_id=f"evt_{ulid}",
        traceparent=ticket.traceparent or _new_traceparent(),
    )


def _new_traceparent() -> str:
    bits = random.getrandbits(192) | 1 << 64 | 1  # neither id may be zero
    text = f"{bits:048x}"
    return f"00-{text[:32]}-{text[32:]}-00"

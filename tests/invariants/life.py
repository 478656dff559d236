"""A whole sale in one process: real stores and real loops, driven step by step, faults included.

Nothing here decides anything: each method lets one part of the product do one thing. A step may be
its process's last (`crash_at`); whatever that leaves behind, the other parts must live with.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar

import orjson
import pytest
from django.db import connection
from django.utils import timezone
from ulid import ULID

import faultpoint
from inventory import operation_requests, operations, verbs
from inventory.call import Call
from inventory.contracts import Reservation, ReserveCode
from inventory.errors import GateUnavailable
from inventory.gate import gate
from messaging import relay as relay_module
from messaging.outbox import LANES
from messaging.relay import Relay
from messaging.topology import CG_ORDER_CREATE, TAG_CREATE_ORDER
from orders import gate_check
from orders.payments import providers
from orders.scan import runner
from orders.scan.pending import PendingJob
from orders.scan.resend import Resender
from orders.scan.runner import Job
from orders.scan.sweep import SweepJob
from orders.selectors import reservation_status
from seckill.admission import purchase
from seckill.admission.breaker import Breaker
from seckill.admission.problems import Answer
from seckill.admission.purchase import Purchases, Ticket
from tests.fixtures.rebuild import Crashed
from tests.fixtures.sales import TRACEPARENT, Sale, open_sale
from tests.invariants.provider import InProcessProvider
from tests.invariants.virtual_clock import VirtualClock
from tests.invariants.wire import CONFIRMED, AsyncWire, Wire

T = TypeVar("T")
LIMIT: Final = 2
VALIDITY_S: Final = 300
PAY_WINDOW_S: Final = 900
JOBS: Final = (
    *("pending", "sweep", "overdue", "release", "gate_ops"),
    *("payments", "refunds", "webhooks", "held"),
)
_LEASE_S: Final = 10.0


@dataclass
class LossyGate:
    """Runs admission's calls on the real gate; the next `times` answers of `script` get lost."""

    script: str = ""
    times: int = 0

    async def run(self, call: Call[T]) -> T:
        answer = gate().run(call)
        if call.script == self.script and self.times:
            self.times -= 1
            raise GateUnavailable("the answer was lost")
        return answer


class Life:
    """One sale and everything that works for it."""

    def __init__(self, *, clock: VirtualClock, patch: pytest.MonkeyPatch) -> None:
        self.clock = clock
        self._patch = patch
        self._loop = asyncio.new_event_loop()
        self._drawn = 0
        self._deadly_point = ""
        self._jobs: dict[str, Job] = {}
        self.wire = Wire()
        self.web = AsyncWire(self.wire)
        self.provider = InProcessProvider()
        self.promised: set[str] = set()  # told 202, or "already yours"
        self.refused: set[str] = set()  # told that its send failed
        self.lost: set[str] = set()  # reservations whose stored message the broker lost
        self.held: set[str] = set()  # by a ticket, when it was last looked at
        self.known: list[str] = []  # ULIDs of all reservations ever drawn
        for name in ("current", "named"):
            patch.setattr(providers, name, lambda *_: self.provider)
        patch.setattr(purchase, "ULID", self._ulid)
        patch.setattr(faultpoint, "hit", self._hit)
        patch.setattr(relay_module, "SINGLES", 1)  # one thread: the same order each time
        patch.setattr(operation_requests, "_AGAIN_AFTER_S", (0.0,))
        patch.setattr(gate_check, "YOUNG_MS", -(10**9))
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")  # admission and scanner share this thread

    def open(self, *, units: int) -> Sale:
        self.clock.restart()
        self.sale = open_sale(units=units, limit_per_user=LIMIT, pay_window_s=PAY_WINDOW_S)
        operations.request_edit(
            activity_id=self.sale.activity_id,
            wish=operations.EditWish(
                ends_at=timezone.now() + timedelta(days=30), validity_s=VALIDITY_S
            ),
            reason="the clock is ahead",
        )
        return self.sale

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.wire.turn_to(self.clock.now_ms)

    def close(self) -> None:
        self._end_jobs()
        self._loop.close()

    def _ulid(self) -> ULID:
        """Draw ids that grow, so that "in the order of ids" is the same order each time."""
        self._drawn += 1
        drawn = ULID.from_bytes(
            self.clock.now_ms.to_bytes(6, "big") + self._drawn.to_bytes(10, "big")
        )
        self.known.append(str(drawn))
        return drawn

    # -- crashes --------------------------------------------------------------------------------

    def crash_at(self, point: str) -> None:
        """The next process to pass this point dies there."""
        self._deadly_point = point

    def _hit(self, point: str) -> None:
        if point == self._deadly_point:
            self._deadly_point = ""
            raise Crashed(point)

    @contextmanager
    def process(self) -> Iterator[None]:
        """What runs in here may die; a new process knows nothing of what it had in mind."""
        try:
            yield
        except Crashed:
            self._end_jobs()

    # -- buyers ---------------------------------------------------------------------------------

    def buy(
        self,
        user: str,
        *,
        quantity: int = 1,
        key: str = "",
        lossy: LossyGate | None = None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Answer | None:
        """One POST, up to its answer; None when the process died before."""
        self.web.meanwhile = meanwhile
        ticket = Ticket(
            sku_id=self.sale.sku_id,
            user_id=user,
            quantity=quantity,
            key=key,
            traceparent=TRACEPARENT,
            answer=self._loop.create_future(),
        )
        mine = len(self.known)
        with self.process():
            self._loop.run_until_complete(
                self._purchases(lossy or LossyGate()).run(self.sale.activity_id, [ticket])
            )
            answer = ticket.answer.result()
            self._note(answer, f"rsv_{self.known[mine]}")
            return answer
        return None

    def click(self, user: str) -> None:
        """A second request of a buyer, at another process, while his first one is under way."""
        (reply,) = gate().run(
            verbs.reserve(
                activity_id=self.sale.activity_id,
                requests=[self.sale._request(user, sku_id=self.sale.sku_id, quantity=1)],
                lease_owner="another",
                lease_ms=1_000,
            )
        )
        assert reply.code is ReserveCode.ALREADY_RESERVED, reply
        assert reply.reservation is not None
        self.promised.add(reply.reservation.reservation_id)

    def _purchases(self, gate_runner: LossyGate) -> Purchases:
        async def gate_missing(_: tuple[int, int]) -> str:
            return "GATE_LOST"

        async def reject_reason(reservation: Reservation) -> str | None:
            view = reservation_status(
                activity_id=reservation.activity_id,
                reservation_id=reservation.reservation_id,
                user_id=reservation.user_id,
            )
            connection.close()  # an event loop has one of its own
            return view.reason if view is not None and view.version > 0 else None

        return Purchases(
            gate=gate_runner,
            producer=self.web,
            breaker=Breaker(),
            lease_owner="web",
            lease_ms=1_000,
            send_budget_ms=40,
            on_empty=lambda _: None,
            gate_missing=gate_missing,
            reject_reason=reject_reason,
            accepted=lambda *_: None,
        )

    def _note(self, answer: Answer, drawn: str) -> None:
        if answer.status == 202 or answer.code == "ALREADY_RESERVED":
            self.promised.add(orjson.loads(answer.body)["reservation_id"])
        elif answer.code == "SEND_FAILED":
            self.refused.add(drawn)

    # -- loops ----------------------------------------------------------------------------------

    def relay(self, lane: int, *, limit: int = 100) -> int:
        relay = Relay(self.wire, lease_s=_LEASE_S, timeout_ms=1_000)
        try:
            with self.process():
                return relay.run_round(lane=lane, limit=limit)
            return 0
        finally:
            relay.close()

    def job(self, name: str) -> int:
        if name not in self._jobs:
            self._jobs[name] = self._new_job(name)
        with self.process():
            return self._jobs[name].run_once()
        return 0

    def _new_job(self, name: str) -> Job:
        if name == PendingJob.name:
            return PendingJob(resender=Resender(self.wire))
        if name == SweepJob.name:
            return SweepJob(resender=Resender(self.wire))
        return runner.JOBS[name]()

    def _end_jobs(self) -> None:
        for job in self._jobs.values():
            job.close()
        self._jobs.clear()

    def deliver(self, group: str, **how: Any) -> int:
        with self.process():
            return self.wire.deliver(group, **how)
        return 0

    def replay(self, *, topic: str, body: bytes, message_id: str) -> None:
        """A ticket sends a dead message again, as it was."""
        self.wire.store(topic=topic, body=body, message_id=message_id, tag=TAG_CREATE_ORDER)

    def lose(self, group: str, place: int) -> None:
        message = self.wire.lose(group, place)
        if message is not None and group == CG_ORDER_CREATE:
            self.lost.add(orjson.loads(message.body)["reservation_id"])

    # -- rest -----------------------------------------------------------------------------------

    def work_once(self) -> None:
        """Let every loop do what it can do now."""
        for name in JOBS:
            self.job(name)
        for group in self.wire.queues:
            self.deliver(group, count=100)
        for lane in LANES:
            self.relay(lane)
        for group in self.wire.queues:
            self.deliver(group, count=100)
        while self.provider.deliver_webhook(0) is not None:
            pass

    def calm_down(self) -> None:
        """No fault comes any more."""
        self._deadly_point = ""
        self.wire.next_send = CONFIRMED
        self.provider.calm_down()

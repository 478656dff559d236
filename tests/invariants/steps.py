"""The steps that a random life may take, and how often: a mixin of the state machine.

A step that finds nothing to do lets the sale go on instead, so that few steps are wasted. Targets
are chosen by place, counted around, never by what the stores hold: the same draws are the same
life.
"""

from contextlib import suppress
from typing import Any, Final

from django.contrib.auth.models import User
from hypothesis import strategies as st

from inventory import operations
from inventory.errors import OperationRefused
from messaging.outbox import LANE_COMPENSATE, LANES
from messaging.topology import CG_INVENTORY_COMPENSATE, CG_ORDER_CREATE
from orders.cancel_order import cancel_by_operator, cancel_by_user
from orders.compensate import compensate
from orders.errors import OrderStateConflict, TicketRefused
from orders.extension import grant_extension
from orders.payments import refunds
from orders.payments.attempts import start_payment
from tests.fixtures.sales import Sale
from tests.fixtures.sql import rows
from tests.invariants import provider as payment
from tests.invariants.draws import (
    CRASHES,
    MAY_LOSE,
    action,
    buyers,
    counts,
    fates,
    mostly_one,
    places,
    queries,
    writes,
)
from tests.invariants.life import JOBS, Life, LossyGate
from tests.invariants.promises import assert_no_breach
from tests.invariants.wire import CONFIRMED, GROUPS

# A buyer who holds a reservation is never told one of these.
_REFUSALS: Final = {"SOLD_OUT", "CLOSED", "ENDED", "NOT_STARTED", "BUSY", "LIMIT_EXCEEDED"}


class Steps:
    """What may happen to `life`."""

    life: Life
    sale: Sale
    operator: User

    @action(1)
    def nothing(self) -> None:
        """The simplest step, which every run of hypothesis begins with forty times."""

    # -- buyers and admission -------------------------------------------------------------------

    @action(
        9,
        user=buyers, quantity=mostly_one, fate=fates, key=st.sampled_from([*[""] * 4, "k1", "k2"]),
        meanwhile=st.sampled_from([*[""] * 4, "click", "stall"]),
        lossy=st.sampled_from([*[""] * 6, "reserve", "give_back", "mark_sent"]),
        times=st.integers(1, 2),
    )  # fmt: skip
    def buy(
        self, user: str, quantity: int, key: str, fate: str, meanwhile: str, lossy: str, times: int
    ) -> None:
        holds = user in self.sale.holders()
        self.life.wire.next_send = fate
        answer = self.life.buy(
            user,
            quantity=quantity,
            key=key,
            lossy=LossyGate(lossy, times),
            meanwhile={"click": lambda: self.life.click(user), "stall": self._stall}.get(
                meanwhile, lambda: None
            ),
        )
        self.life.wire.next_send = CONFIRMED
        assert not holds or answer is None or answer.code not in _REFUSALS, answer

    def _stall(self) -> None:
        """Admission's process stands still for longer than its lease; the scanner takes over."""
        self.life.wire.next_send = CONFIRMED
        self.life.pass_time(2)
        self.life.job("pending")

    # -- messages -------------------------------------------------------------------------------

    @action(
        5,
        group=st.sampled_from(GROUPS), first=places, count=counts, early=st.booleans(),
        backwards=st.booleans(), acks_work=st.sampled_from([True, True, False]),
    )  # fmt: skip
    def deliver(
        self, group: str, first: int, count: int, early: bool, backwards: bool, acks_work: bool
    ) -> None:
        wire = self.life.wire
        if early:
            wire.turn_to(2**53)
        if not wire.queues[group]:
            self._go_on()
        self.life.deliver(group, first=first, count=count, backwards=backwards, acks_work=acks_work)

    @action(3, count=counts)
    def make_orders(self, count: int) -> None:
        self.life.deliver(CG_ORDER_CREATE, count=count)

    @action(3, user=buyers, first=places, acks_work=st.booleans())
    def meet_a_bug(self, user: str, first: int, acks_work: bool) -> None:
        if not self.life.wire.queues[CG_ORDER_CREATE]:
            self.life.buy(user)
        self.life.deliver(CG_ORDER_CREATE, first=first, acks_work=acks_work, poison=True)

    @action(2, group=st.sampled_from(MAY_LOSE), user=buyers, place=places)
    def lose(self, group: str, user: str, place: int) -> None:
        """The broker loses a message that it had confirmed."""
        if not self.life.wire.queues[group]:
            if group == CG_INVENTORY_COMPENSATE:
                self.cancel(place=place, by_buyer=True, restock=True)
            else:
                self.life.buy(user)
            if group != CG_ORDER_CREATE:
                self._publish_all()
        self.life.lose(group, place)

    @action(5, lane=st.sampled_from([0, 0, 1, 1, 2, 2]), fate=fates)
    def publish(self, lane: int, fate: str) -> None:
        self.life.wire.next_send = fate
        self.life.relay(lane)
        self.life.wire.next_send = CONFIRMED

    # -- time, scanner, crashes -----------------------------------------------------------------

    @action(3, seconds=st.sampled_from([2, 12, 45, 310, 310, 920]))
    def time_passes(self, seconds: int) -> None:
        self.life.pass_time(seconds)

    @action(4, name=st.sampled_from(JOBS), fate=fates, write=writes, query=queries)
    def scan(self, name: str, fate: str, write: str, query: str) -> None:
        self.life.wire.next_send = fate
        self.life.provider.next_write, self.life.provider.next_query = write, query
        self.life.job(name)
        self.life.wire.next_send = CONFIRMED
        self.life.provider.next_write = self.life.provider.next_query = payment.OK

    @action(4, point=st.sampled_from(CRASHES), place=places, user=buyers)
    def crash(self, point: str, place: int, user: str) -> None:
        """Let a process die at a point, if it gets there now; else whoever passes it next."""
        self.life.crash_at(point)
        match point.split(".")[0]:
            case "web":
                self.life.buy(user)
            case "consumer":
                self.life.deliver(CG_ORDER_CREATE, count=3)
            case "scanner":
                self.life.pass_time(2)
                self.life.job("pending")
            case "sender":
                self.life.relay(place % len(LANES))
            case "release":
                self.cancel(place=place, by_buyer=True, restock=True)
                self.life.relay(LANE_COMPENSATE)
                self.life.deliver(CG_INVENTORY_COMPENSATE, count=3)
            case "cancel":
                self.cancel(place=place, by_buyer=True, restock=True)
            case "operation":
                self.operate(change="cut" if place % 2 else "top_up", units=1)
            case "payment":
                self.pay(place=place, fate=payment.OK, webhook_first=False)
            case "refund":
                self.refund(place=place, restock=True)
                self.life.job("refunds")
            case "webhook":
                self.webhook(place=place, again=False)

    @action(1)
    def operators_check(self) -> None:
        assert_no_breach(self.life)

    # -- money ----------------------------------------------------------------------------------

    def _order(self, place: int, *statuses: str) -> tuple[str, str] | None:
        found = rows(
            "SELECT order_id, user_id FROM orders_order WHERE status = ANY(%s::text[])"
            " ORDER BY order_id",
            list(statuses),
        )
        return found[place % len(found)] if found else None

    def _go_on(self) -> None:
        """A step that finds nothing to do lets the sale go on instead."""
        for group in GROUPS:
            self.life.deliver(group, count=100)
        self._publish_all()

    def _publish_all(self) -> None:
        self.life.deliver(CG_ORDER_CREATE, count=100)
        for lane in LANES:
            self.life.relay(lane)

    @action(4, place=places, fate=writes, webhook_first=st.booleans())
    def pay(self, place: int, fate: str, webhook_first: bool) -> None:
        order = self._order(place, "CREATED", "PAYING")
        if order is None:
            self._go_on()
            return
        self.life.provider.next_write = fate
        self.life.provider.webhook_first = webhook_first
        with self.life.process():
            start_payment(order_id=order[0], user_id=order[1])
        self.life.provider.next_write = payment.OK
        self.life.provider.webhook_first = False

    @action(2, place=places, succeed=st.booleans())
    def provider_moves_on(self, place: int, succeed: bool) -> None:
        if not self.life.provider.move_on(place=place, succeed=succeed):
            self._go_on()

    @action(2, place=places, again=st.booleans())
    def webhook(self, place: int, again: bool) -> None:
        with self.life.process():
            if self.life.provider.deliver_webhook(place, again=again) is None:
                self._go_on()

    @action(2, place=places, restock=st.booleans())
    def refund(self, place: int, restock: bool) -> None:
        order = self._order(place, "PAID")
        if order is None:
            self._go_on()
        else:
            refunds.refund_order(
                order_id=order[0], user=self.operator, reason="test", restock=restock
            )

    @action(1)
    def retry_a_failed_refund(self) -> None:
        for (refund_id,) in rows("SELECT refund_id FROM orders_refund WHERE status = 'FAILED'"):
            with suppress(refunds.RefundRefused):  # the provider does not say no yet
                refunds.retry_failed(refund_id=refund_id, user=self.operator)

    @action(2, place=places, by_buyer=st.booleans(), restock=st.booleans())
    def cancel(self, place: int, by_buyer: bool, restock: bool) -> None:
        order = self._order(place, "CREATED", "PAYING", "PAID")
        if order is None:
            self._go_on()
            return
        with self.life.process(), suppress(OrderStateConflict):
            if by_buyer:
                cancel_by_user(order_id=order[0], user_id=order[1])
            else:
                cancel_by_operator(
                    order_id=order[0], user=self.operator, reason="test", restock=restock
                )

    # -- operators and tickets ------------------------------------------------------------------

    @action(
        2,
        change=st.sampled_from(["top_up", "top_up", "cut", "cut", "pause", "close", "stop"]),
        units=st.integers(1, 3),
    )
    def operate(self, change: str, units: int) -> None:
        request: Any = getattr(operations, f"request_{change}")
        more = {"sku_id": self.sale.sku_id, "units": units} if change in {"top_up", "cut"} else {}
        with self.life.process(), suppress(OperationRefused):
            request(activity_id=self.sale.activity_id, reason="test", user=self.operator, **more)

    @action(2)
    def sell_again(self) -> None:
        for request in (operations.request_resume, operations.request_open):
            with self.life.process(), suppress(OperationRefused):
                request(activity_id=self.sale.activity_id, reason="test", user=self.operator)

    @action(2, place=places, action=st.sampled_from(["replay", "compensate"]))
    def end_a_ticket(self, place: int, action: str) -> None:
        tickets = self._tickets()
        if not tickets:
            self._go_on()
            return
        reservation_id, topic, body, message_id = tickets[place % len(tickets)]
        with self.life.process(), suppress(TicketRefused):
            if action == "compensate":
                compensate(reservation_id=reservation_id, reason="test", user=self.operator)
            else:
                grant_extension(
                    reservation_id=reservation_id, seconds=600, reason="test", user=self.operator
                )
                self.life.replay(topic=topic, body=bytes(body), message_id=message_id)

    def _tickets(self) -> list[tuple[Any, ...]]:
        return rows(
            "SELECT reservation_id, topic, body, message_id FROM messaging_quarantine"
            " WHERE status = 'OPEN' AND consumer_group = %s ORDER BY id",
            CG_ORDER_CREATE,
        )

"""Random sequences of verbs at one gate against a small reference; invariants after every step."""

import redis
from django.conf import settings as django_settings
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from inventory import verbs
from inventory.contracts import (
    AdjustCode,
    ConfirmCode,
    GateWriteCode,
    GiveBackCode,
    MarkCode,
    ReserveCode,
)
from inventory.gate import gate
from tests.fixtures.gate import GateSale, wish

USERS = st.sampled_from(["ann", "bob", "cat", "dan"])
ANY = st.integers(0, 30)


class GateMachine(RuleBasedStateMachine):
    """The reference knows each reservation's state; the gate must agree with it."""

    @initialize(units=st.integers(0, 4), limit=st.integers(1, 2))
    def start(self, units: int, limit: int) -> None:
        self.client = redis.Redis.from_url(django_settings.REDIS_URL, decode_responses=True)
        self.client.flushdb()
        self.sale = GateSale(client=self.client, gate=gate())
        self.sale.load(units, limit_per_user=limit, max_open=3)
        self.sale.open()
        self.total, self.limit, self.accepts, self.operations = units, limit, True, 0
        self.states: dict[str, str] = {}  # reservation → RESERVED, SENT, CONFIRMED, RELEASED
        self.records = {}
        self.lost_units = 0

    def teardown(self) -> None:
        if hasattr(self, "client"):
            self.client.flushdb()
            self.client.close()

    def live(self) -> dict[str, str]:
        return {
            record.user_id: rid
            for rid, record in self.records.items()
            if self.states[rid] != "RELEASED"
        }

    def held(self) -> int:
        return sum(self.records[rid].quantity for rid in self.live().values())

    def some(self, n: int):
        return list(self.records.values())[n % len(self.records)] if self.records else None

    @rule(user=USERS, quantity=st.integers(0, 3))
    def reserve(self, user: str, quantity: int) -> None:
        (reply,) = self.sale.reserve(wish(user, quantity=quantity))
        left = self.total - self.lost_units - self.held()
        waiting = sum(state in {"RESERVED", "SENT"} for state in self.states.values())
        if user in self.live():
            expected = ReserveCode.ALREADY_RESERVED
            assert reply.reservation.reservation_id == self.live()[user]
        elif not self.accepts:
            expected = ReserveCode.CLOSED
        elif not 1 <= quantity <= self.limit:
            expected = ReserveCode.LIMIT_EXCEEDED
        elif quantity > left:
            expected = ReserveCode.SOLD_OUT
        elif waiting >= 3:
            expected = ReserveCode.BUSY
        else:
            expected = ReserveCode.RESERVED
            self.records[reply.reservation.reservation_id] = reply.reservation
            self.states[reply.reservation.reservation_id] = "RESERVED"
        assert reply.code is expected

    @rule(n=ANY)
    def mark(self, n: int) -> None:
        if record := self.some(n):
            was = self.states[record.reservation_id]
            code = self.sale.mark_sent(record)
            assert code is (MarkCode.OK if was == "RESERVED" else MarkCode.NOT_APPLICABLE)
            if was == "RESERVED":
                self.states[record.reservation_id] = "SENT"

    @rule(n=ANY)
    def confirm(self, n: int) -> None:
        if record := self.some(n):
            was = self.states[record.reservation_id]
            code = self.sale.confirm(record)
            if was == "RELEASED":
                assert code is ConfirmCode.NOT_APPLICABLE
            else:
                assert code is (ConfirmCode.ALREADY if was == "CONFIRMED" else ConfirmCode.OK)
                self.states[record.reservation_id] = "CONFIRMED"

    @rule(n=ANY, restock=st.booleans())
    def release(self, n: int, restock: bool) -> None:
        if record := self.some(n):
            was = self.states[record.reservation_id]
            reply = self.sale.release(record, restock=restock)
            assert reply.given_back == (record.quantity if was != "RELEASED" and restock else 0)
            if was != "RELEASED" and not restock:
                self.lost_units += record.quantity
            self.states[record.reservation_id] = "RELEASED"

    @rule(n=ANY)
    def give_back(self, n: int) -> None:
        if record := self.some(n):
            was = self.states[record.reservation_id]
            observed = self.sale.stored(record.reservation_id)["observed"] == "1"
            code = self.sale.give_back(record)
            if was == "RELEASED":
                assert code is GiveBackCode.RELEASED
            elif was == "RESERVED" and not observed:
                assert code is GiveBackCode.OK
                self.states[record.reservation_id] = "RELEASED"
            else:
                assert code is GiveBackCode.REFUSED

    @rule(units=st.integers(-3, 3).filter(bool), again=st.booleans())
    def adjust(self, units: int, again: bool) -> None:
        self.operations += not (again and self.operations)
        before = self.sale.stock()
        reply = self.sale.run(
            verbs.adjust_stock(
                activity_id=42,
                sku_id=7,
                operation_id=f"op_{self.operations}",
                units=units,
                epoch=1,
            )
        )
        if reply.code is AdjustCode.OK:
            assert reply.units == max(units, -before)
            self.total += reply.units
        else:
            assert (reply.code, again) == (AdjustCode.REPEATED, True)

    @rule(close=st.booleans())
    def switch(self, close: bool) -> None:
        code = self.sale.close() if close else self.sale.open(first=False)
        assert code is GateWriteCode.OK
        self.accepts = not close

    @invariant()
    def nothing_appears_and_nothing_vanishes(self) -> None:
        if not hasattr(self, "sale"):
            return
        assert self.sale.stock() >= 0
        assert self.sale.stock() + self.held() + self.lost_units == self.total
        assert self.sale.holders() == self.live()
        waiting = {rid for rid, state in self.states.items() if state in {"RESERVED", "SENT"}}
        assert set(self.sale.opened()) == waiting
        assert set(self.sale.pending()) == {
            rid for rid, state in self.states.items() if state == "RESERVED"
        }


GateMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestGate = GateMachine.TestCase

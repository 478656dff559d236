"""Random lives of a sale: any order of steps and faults, on real PostgreSQL and real Redis.

After every step the safety promises hold; at the end, with all faults off, everything comes to rest
and every buyer, unit and cent is accounted for. A failure prints the steps as a program, and the
seed that repeats it. `SECKILL_HYPOTHESIS_EXAMPLES=500` runs other, and more, lives than the suite.
"""

import os
import secrets
from collections.abc import Iterator
from typing import Any, Final

import pytest
from django.contrib.auth.models import User
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from messaging.topology import CG_ORDER_CREATE
from orders.scan import serving
from tests.fixtures.sql import execute
from tests.invariants import provider as payment
from tests.invariants.draws import steps
from tests.invariants.life import Life
from tests.invariants.promises import (
    assert_rest_is_right,
    assert_safe,
    drive_to_rest,
    let_payments_end,
)
from tests.invariants.steps import Steps
from tests.invariants.virtual_clock import VirtualClock, virtual_clock

EXAMPLES: Final = int(os.environ.get("SECKILL_HYPOTHESIS_EXAMPLES", "0"))
IN_THE_SUITE: Final = 25
STEPS: Final = 40
# Children first.
_TABLES: Final = (
    *("orders_refund", "orders_payment_attempt", "orders_webhook", "orders_effect"),
    *("orders_query", "orders_extension", "orders_item", "orders_order", "orders_reservation"),
    *("inventory_stockledger", "inventory_gateoperation", "inventory_stock", "inventory_sku"),
    *("inventory_activity", "messaging_inbox", "messaging_outbox", "messaging_quarantine"),
    *("messaging_grouppause", "django_admin_log"),
)


class _Stage:
    """What the examples share; set by the test below, which the machine knows nothing of."""

    clock: VirtualClock
    operator: User


class RandomLife(Steps, RuleBasedStateMachine):
    """One sale of a few units, six buyers, all that serves them, and all that fails."""

    lived = False

    @initialize(units=st.integers(1, 6), orders=st.integers(0, 3), paid=st.booleans())
    def open(self, units: int, orders: int, paid: bool) -> None:
        self._patch = pytest.MonkeyPatch()
        self.operator = _Stage.operator
        self.life = Life(clock=_Stage.clock, patch=self._patch)
        self.sale = self.life.open(units=units)
        for user in ("ann", "bob", "cid")[:orders]:
            self.life.buy(user)
        self.life.deliver(CG_ORDER_CREATE, count=3)
        if paid and orders:
            self.pay(place=0, fate=payment.OK, webhook_first=False)

    @rule(step=steps())
    def step(self, step: tuple[str, dict[str, Any]]) -> None:
        name, arguments = step
        getattr(self, name)(**arguments)
        if name != "nothing":
            self.lived = True
            assert_safe(self.life)

    def teardown(self) -> None:
        if not hasattr(self, "life"):
            return
        try:
            if self.lived:
                drive_to_rest(self.life)
                assert_rest_is_right(self.life)
                let_payments_end(self.life)
                assert_rest_is_right(self.life)
        finally:
            self.life.close()
            self._patch.undo()
            for table in _TABLES:
                execute(f"DELETE FROM {table}")  # noqa: S608
            self.life.clock.forget()


@pytest.fixture
def _django_db_helper(
    django_db_setup: None, django_db_blocker: Any, redis_client: Any
) -> Iterator[None]:
    """Real commits, a clock to turn, an operator who may everything."""
    with django_db_blocker.unblock(), virtual_clock() as clock:
        _Stage.clock = clock
        _Stage.operator = User.objects.create(username="random_life", is_superuser=True)
        try:
            yield
        finally:
            execute("DELETE FROM auth_user")
            serving._known = (-1.0, [])


@pytest.mark.django_db
@pytest.mark.timeout(600 + 20 * EXAMPLES)
def test_a_random_life_keeps_every_promise() -> None:
    """One run of hypothesis a life: in a longer one it would try near copies of what it has."""
    first = int(
        os.environ.get("SECKILL_HYPOTHESIS_SEED") or secrets.randbits(32) if EXAMPLES else 0
    )
    for number in range(first, first + (EXAMPLES or IN_THE_SUITE)):
        try:
            run_state_machine_as_test(seed(number)(RandomLife), settings=_SETTINGS)
        except Exception as error:
            error.add_note(
                f"SECKILL_HYPOTHESIS_EXAMPLES=1 SECKILL_HYPOTHESIS_SEED={number} repeats it"
            )
            raise


_SETTINGS: Final = settings(
    max_examples=2,  # the simplest life, and this seed's
    stateful_step_count=STEPS,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)

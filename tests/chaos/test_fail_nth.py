"""Every operation of every service fails once, before and after it took effect.

For N = 1, 2, … until there is no Nth: the service does its work on a new buyer while its Nth
operation fails; the promises hold at once, everybody else goes on, and in the end the sale comes to
rest with every buyer, unit and cent accounted for.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, connection

from inventory import operations
from inventory.errors import GateUnavailable, OperationRefused
from messaging.attempt import Outage
from messaging.errors import BrokerUnavailable, TransientError
from messaging.topology import (
    CG_INVENTORY_COMPENSATE,
    CG_ORDER_CREATE,
    CG_ORDER_PROJECTION,
    CG_ORDER_TIMEOUT,
    CG_SETTLEMENT,
)
from orders.cancel_order import cancel_by_user
from orders.compensate import compensate
from orders.errors import OrderStateConflict, TicketRefused
from orders.payments import refunds
from orders.payments.attempts import start_payment
from orders.rebuild.gate import rebuild_gate
from orders.reconcile.run import reconcile
from orders.scan import serving
from orders.scan.mark import MarkJob
from tests.chaos.nth import BEFORE, BROKER, KINDS, MOMENTS, REDIS, SQL, Nth, failing
from tests.fixtures.sales import Sale
from tests.fixtures.sql import execute, one, rows
from tests.invariants import provider as payment
from tests.invariants.life import Life
from tests.invariants.promises import (
    assert_rest_is_right,
    assert_safe,
    drive_to_rest,
)
from tests.invariants.test_random_life import _TABLES
from tests.invariants.virtual_clock import VirtualClock, virtual_clock
from tests.invariants.wire import UNKNOWN_LOST

UNITS: Final = 200
_AND_TABLES: Final = (
    *("orders_reconcile_finding", "orders_reconcile_run", "inventory_gatemark"),
    *("inventory_rebuildrun", *_TABLES, "auth_user"),
)
TOO_MANY: Final = 80  # a service with more operations than this for one buyer is broken
# What a loop or a view lives with: it logs, waits, or answers 503, and goes on.
_LIVED_WITH: Final = (
    *(DatabaseError, GateUnavailable, BrokerUnavailable, TransientError, Outage),
    *(OperationRefused, OrderStateConflict, TicketRefused),
)


@dataclass
class Stage:
    """A sale, and one new buyer for each N."""

    life: Life
    sale: Sale
    operator: User
    buyers: int = 0
    notes: dict[str, Any] = field(default_factory=dict)

    def newcomer(self) -> str:
        self.buyers += 1
        return f"b{self.buyers}"

    @property
    def user(self) -> str:
        return f"b{self.buyers}"

    @property
    def order_id(self) -> str:
        return str(one("SELECT order_id FROM orders_order WHERE user_id = %s", self.user))

    def buy(self) -> None:
        self.life.buy(self.newcomer())

    def order(self) -> None:
        self.buy()
        self.life.deliver(CG_ORDER_CREATE, count=100)

    def publish(self) -> None:
        for lane in (0, 1, 2):
            self.life.relay(lane)

    def pay(self) -> None:
        start_payment(order_id=self.order_id, user_id=self.user)


@dataclass(frozen=True)
class Service:
    """`prepare` gives it work, `work` is what fails, `kinds` are what it must have some of."""

    prepare: Callable[[Stage], object]
    work: Callable[[Stage], object]
    kinds: tuple[str, ...]
    moments: tuple[str, ...] = MOMENTS


def _then(*steps: Callable[[Stage], object]) -> Callable[[Stage], object]:
    def run(stage: Stage) -> None:
        for step in steps:
            step(stage)

    return run


def _deliver(group: str) -> Callable[[Stage], object]:
    return lambda stage: stage.life.deliver(group, count=100)


def _job(name: str) -> Callable[[Stage], object]:
    return lambda stage: stage.life.job(name)


def _wait(seconds: float) -> Callable[[Stage], object]:
    return lambda stage: stage.life.pass_time(seconds)


def _cancel(stage: Stage) -> None:
    cancel_by_user(order_id=stage.order_id, user_id=stage.user)


def _unsent(stage: Stage) -> None:
    stage.life.wire.next_send = UNKNOWN_LOST
    stage.buy()


def _lost(stage: Stage) -> None:
    stage.buy()
    stage.life.lose(CG_ORDER_CREATE, 0)


def _unanswered(stage: Stage) -> None:
    stage.life.provider.next_write = payment.TIMEOUT_AFTER
    stage.pay()


def _pending(stage: Stage) -> None:
    stage.life.provider.next_write = payment.PENDING
    stage.pay()
    stage.life.provider.move_on(succeed=True)


def _refund_due(stage: Stage) -> None:
    stage.pay()
    refunds.refund_order(order_id=stage.order_id, user=stage.operator, reason="t", restock=True)


def _ticket(stage: Stage) -> None:
    stage.buy()
    stage.life.deliver(CG_ORDER_CREATE, count=100, poison=True)


def _compensate(stage: Stage) -> None:
    for (held,) in rows(
        "SELECT reservation_id FROM messaging_quarantine WHERE user_id = %s AND status = 'OPEN'",
        stage.user,
    ):
        compensate(reservation_id=held, reason="t", user=stage.operator)


def _operation(verb: str, **units: int) -> Callable[[Stage], object]:
    def run(stage: Stage) -> None:
        more = {"sku_id": stage.sale.sku_id, **units} if units else {}
        getattr(operations, f"request_{verb}")(
            activity_id=stage.sale.activity_id, reason="t", user=stage.operator, **more
        )

    return run


def _selling(stage: Stage) -> None:
    for request in (operations.request_resume, operations.request_open):
        with suppress(OperationRefused):
            request(activity_id=stage.sale.activity_id, reason="t", user=stage.operator)


def _rebuild(stage: Stage) -> None:
    rebuild_gate(activity_id=stage.sale.activity_id, reason="t", poll_s=0.0)


def _one_order(stage: Stage) -> None:
    """Nothing in flight, or the rebuild would wait for it."""
    if not stage.buyers:
        stage.order()
        stage.life.work_once()


SERVICES: Final[dict[str, Service]] = {
    "admission": Service(lambda stage: None, Stage.buy, (REDIS, BROKER)),
    "order consumer": Service(Stage.buy, _deliver(CG_ORDER_CREATE), (*KINDS[:1], BROKER)),
    "order consumer, too late": Service(
        _then(Stage.buy, _wait(310)), _deliver(CG_ORDER_CREATE), (SQL, BROKER)
    ),
    "sender": Service(Stage.order, Stage.publish, (SQL, BROKER)),
    "projection": Service(_then(Stage.order, Stage.publish), _deliver(CG_ORDER_PROJECTION), KINDS),
    "time-out consumer": Service(
        # its message is held back for a minute
        _then(Stage.order, _wait(61), Stage.publish, _wait(860)),
        _deliver(CG_ORDER_TIMEOUT),
        (SQL, BROKER),
    ),
    "release consumer": Service(
        _then(Stage.order, _cancel, Stage.publish), _deliver(CG_INVENTORY_COMPENSATE), KINDS
    ),
    "settlement": Service(
        _then(Stage.order, Stage.pay, Stage.publish), _deliver(CG_SETTLEMENT), (SQL, BROKER)
    ),
    "scan pending": Service(_then(_unsent, _wait(2)), _job("pending"), (REDIS, BROKER)),
    "scan sweep, unconfirmed": Service(_then(_lost, _wait(45)), _job("sweep"), KINDS),
    "scan sweep, too late": Service(_then(_lost, _wait(310)), _job("sweep"), (SQL, REDIS)),
    "scan overdue": Service(_then(Stage.order, _wait(960)), _job("overdue"), (SQL,)),
    "scan release": Service(_then(Stage.order, _cancel, _wait(40)), _job("release"), (SQL, REDIS)),
    "scan payments": Service(_then(Stage.order, _unanswered, _wait(61)), _job("payments"), (SQL,)),
    "scan refunds": Service(_then(Stage.order, _refund_due), _job("refunds"), (SQL,)),
    "scan mark": Service(lambda stage: None, lambda stage: MarkJob().run_once(), (SQL, REDIS)),
    "cancel by the buyer": Service(Stage.order, _cancel, (SQL,)),
    "pay": Service(Stage.order, Stage.pay, (SQL,)),
    "webhook": Service(
        _then(Stage.order, _pending), lambda stage: stage.life.provider.deliver_webhook(0), (SQL,)
    ),
    "compensate": Service(_ticket, _compensate, (SQL, REDIS)),
    "top up": Service(lambda stage: None, _operation("top_up", units=1), (SQL, REDIS)),
    "cut": Service(lambda stage: None, _operation("cut", units=1), (SQL, REDIS)),
    "pause": Service(_selling, _operation("pause"), (SQL, REDIS)),
    "emergency stop": Service(_selling, _operation("stop"), (SQL, REDIS)),
    "rebuild": Service(_one_order, _rebuild, (SQL, REDIS)),
    "reconcile": Service(
        _one_order,
        lambda stage: reconcile(activity_id=stage.sale.activity_id, repair=True),
        (SQL, REDIS),
        moments=(BEFORE,),  # it reads
    ),
}


@pytest.fixture
def _django_db_helper(
    django_db_setup: None, django_db_blocker: Any, redis_client: Any
) -> Iterator[VirtualClock]:
    """Real commits, and a clock to turn."""
    with django_db_blocker.unblock(), virtual_clock() as clock:
        yield clock


@pytest.fixture
def stage(_django_db_helper: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """An open sale and an operator who may everything."""
    clock, patch = _django_db_helper, monkeypatch
    operator = User.objects.create(username="nth", is_superuser=True)
    life = Life(clock=clock, patch=patch)
    try:
        yield Stage(life=life, sale=life.open(units=UNITS), operator=operator)
    finally:
        life.close()
        patch.undo()
        for table in _AND_TABLES:
            execute(f"DELETE FROM {table}")  # noqa: S608
        clock.forget()
        serving._known = (-1.0, [])


@pytest.mark.django_db
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("name", "moment"), [(name, moment) for name in SERVICES for moment in SERVICES[name].moments]
)
def test_the_nth_operation_fails(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, name: str, moment: str
) -> None:
    service = SERVICES[name]
    for kind in KINDS:
        failed = _fail_each(stage, monkeypatch, service, kind, moment)
        assert bool(failed) >= (kind in service.kinds), f"{name} has no operation of {kind}"
    drive_to_rest(stage.life)
    _selling(stage)
    assert_rest_is_right(stage.life)


def _fail_each(
    stage: Stage, patch: pytest.MonkeyPatch, service: Service, kind: str, moment: str
) -> list[str]:
    """Fail operation 1, 2, … of a kind until the work is done without a failure."""
    failed: list[str] = []
    for number in range(1, TOO_MANY):
        service.prepare(stage)
        nth = Nth(kind=kind, moment=moment, number=number)
        with failing(nth, patch), suppress(*_LIVED_WITH), stage.life.process():
            service.work(stage)
        connection.close()
        if not nth.struck:
            stage.life.work_once()
            return failed
        failed.append(nth.struck)
        try:
            assert_safe(stage.life, rebuilding=service is SERVICES["rebuild"])
            with suppress(*_LIVED_WITH):  # its next round, or the person who asked, tries again
                service.work(stage)
        except AssertionError as error:
            error.add_note(f"{kind} operation {number} failed {moment}: {nth.struck}")
            raise
    raise AssertionError(f"more than {TOO_MANY} operations of {kind}: {failed}")

"""Broker or proxy killed in the middle of a real batch: one effect each, and no item that lies."""

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from devstack.stack import Stack
from dlq_admin.models import DlqMessage, ReplayItem, Ticket
from dlq_admin.replay.worker import replay_loops
from dlq_admin.states import BatchStatus, ItemStatus
from messaging.broker import broker
from messaging.provision import provision
from messaging.sender import sender_loops
from messaging.worker import StopSignal
from orders.handlers import ORDER_CREATE_HANDLER
from tests.fixtures.dlq import Desk, batch_status, dead_ones
from tests.fixtures.loops import order_consumer, working
from tests.fixtures.payments import poll
from tests.fixtures.sql import rows

pytestmark = [
    pytest.mark.faults,
    pytest.mark.timeout(240),
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("redis_client"),
]
DEAD = 8
_I = ItemStatus


@pytest.fixture
def rocketmq(private_stack: Stack, settings: Any) -> Iterator[Stack]:
    """The private broker as this process's own, with all topics; whole again at the end."""
    urls = private_stack.urls()
    for name in ("ROCKETMQ_ENDPOINTS", "ROCKETMQ_NAMESRV", "ROCKETMQ_CLUSTER"):
        setattr(settings, name, urls[name])
    provision()
    yield private_stack
    private_stack.up()


@contextmanager
def transport() -> Iterator[None]:
    """Sender and order consumer."""
    stop = StopSignal()
    with (
        working("sender", *sender_loops(broker(), stop), stop=stop),
        working("consumer", order_consumer(ORDER_CREATE_HANDLER)),
    ):
        yield


def replaying() -> AbstractContextManager[None]:
    """Return the replay worker."""
    return working("replay", *replay_loops())


def states() -> Counter[str]:
    return Counter(ReplayItem.objects.values_list("status", flat=True))


def orders_of(dead: list[DlqMessage]) -> dict[str, int]:
    found = rows(
        "SELECT reservation_id, count(*)::int FROM orders_order"
        " WHERE reservation_id = ANY(%s) GROUP BY 1",
        [one.reservation_id for one in dead],
    )
    return dict(found)


@pytest.mark.parametrize("service", ["broker", "proxy"])
def test_it_is_killed_while_a_batch_runs(
    desk: Desk, rocketmq: Stack, settings: Any, service: str
) -> None:
    settings.SECKILL_INVISIBLE_S = 10  # three tries bridge a restart
    settings.SECKILL_REPLAY_OUTCOME_S = 20  # a killed broker may lose what it had confirmed
    sale, dead = dead_ones(desk, DEAD)
    batch_id = desk.approved(*dead, rate_cap=4)
    with transport(), replaying():
        poll(lambda: states()[_I.VERIFIED] >= 1, timeout_s=60, what=f"the canary: {states()}")
        rocketmq.kill(service)
        noticed = (_I.SEND_UNKNOWN, _I.SEND_FAILED)
        poll(
            lambda: any(states()[one] for one in noticed),
            timeout_s=30,
            what=f"a send that failed: {states()}",
        )
        # What is called proven is proven, whatever is away.
        proven = ReplayItem.objects.filter(status=_I.VERIFIED)
        made = orders_of(dead)
        assert {item.message.reservation_id for item in proven.select_related("message")} <= {*made}
        assert batch_status(batch_id) in (BatchStatus.CANARY, BatchStatus.RUNNING)

        rocketmq.start(service)
        poll(
            lambda: batch_status(batch_id) == BatchStatus.COMPLETED,
            timeout_s=120,
            what=f"the batch to complete: {batch_status(batch_id)} {states()}",
        )

    assert states() == {_I.VERIFIED: DEAD}
    assert orders_of(dead) == {one.reservation_id: 1 for one in dead}
    assert (sale.orders(), sale.available(), sale.ledger_sum()) == (DEAD, 100 - DEAD, 100 - DEAD)
    tries = [item.send_tries for item in ReplayItem.objects.all()]
    assert max(tries) > 1  # somebody was sent again


def test_it_stays_away_until_the_tries_are_used_up(
    desk: Desk, rocketmq: Stack, settings: Any
) -> None:
    """Given up is not sent later: a new plan, not an old send, makes the order."""
    settings.SECKILL_INVISIBLE_S = 1
    settings.SECKILL_PUBLISH_TIMEOUT_MS = 1_000
    sale, (dead,) = dead_ones(desk, 1)
    batch_id = desk.approved(dead)
    with transport():
        rocketmq.kill("proxy")
        with replaying():
            poll(
                lambda: batch_status(batch_id) == BatchStatus.COMPLETED_WITH_FAILURES,
                timeout_s=90,
                what=f"the batch to end: {batch_status(batch_id)} {states()}",
            )
            assert states() == {_I.FAILED_AGAIN: 1}
            assert ReplayItem.objects.get().send_tries == 3
            assert (sale.orders(), DlqMessage.objects.get().status) == (0, "OPEN")
            assert Ticket.objects.get().status == "FIXING"
            rocketmq.start("proxy")

            Ticket.objects.update(status="READY")
            second = desk.approved(dead)
            poll(
                lambda: batch_status(second) == BatchStatus.COMPLETED,
                timeout_s=60,
                what=f"the second plan: {states()}",
            )
    assert states() == {_I.FAILED_AGAIN: 1, _I.VERIFIED: 1}
    assert orders_of([dead]) == {dead.reservation_id: 1}
    assert (sale.orders(), sale.available()) == (1, 99)

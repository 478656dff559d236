"""One fact, many independent effects, each of them once."""

import re
import textwrap
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connections

from messaging import topology
from messaging.broker import broker
from messaging.broker.base import OutgoingMessage, SendOutcome
from messaging.checks import problems
from messaging.consumer import run_loop
from messaging.disposition import DONE, DUPLICATE
from messaging.inflow import LoopOptions
from messaging.topology import CG_AUDIT, CG_POINTS, CG_RISK, CG_SETTLEMENT, ORDER_EVENT
from messaging.worker import StopSignal
from orders.effects import points
from orders.effects.base import EffectHandler
from orders.effects.registry import effect_groups, effect_handlers
from seckill.bootstrap import handlers
from tests.fixtures.effects import AT, event_of, life_of, message_of, order_of
from tests.fixtures.payments import poll
from tests.fixtures.sales import at_once
from tests.fixtures.sql import rows

pytestmark = pytest.mark.django_db(transaction=True)

INBOX = "SELECT consumer_group, count(*)::int FROM messaging_inbox GROUP BY 1 ORDER BY 1"
EFFECTS = "SELECT consumer_group, value, unit FROM orders_effect ORDER BY consumer_group, id"
GROUPS = sorted(group.name for group in effect_groups())


def test_one_paid_order_has_one_inbox_row_and_one_effect_in_each_group_however_often_it_comes():
    paid = life_of()[1]
    for handler in effect_handlers().values():
        assert list(handler.handle([paid])) == [DONE]
    before = rows(EFFECTS), rows("SELECT status, tries FROM orders_notification")
    for handler in effect_handlers().values():
        assert list(handler.handle([paid, paid])) == [DUPLICATE] * 2
        assert list(handler.handle([replace(paid, delivery_attempt=3)])) == [DUPLICATE]

    assert len(GROUPS) == 5
    assert rows(INBOX) == [(name, 1) for name in GROUPS]
    assert (rows(EFFECTS), rows("SELECT status, tries FROM orders_notification")) == before
    assert rows(EFFECTS) == [
        ("CG_SECKILL_INVOICE_V1", 1999, "EUR"),
        ("CG_SECKILL_POINTS_V1", 19, "POINT"),
        ("CG_SECKILL_RISK_V1", 0, "SCORE"),
        ("CG_SECKILL_SETTLEMENT_V1", 1999, "EUR"),
    ]
    assert before[1] == [("PENDING", 0)]


def test_the_same_fact_under_another_message_id_has_no_second_effect():
    order = order_of(status="PAID", version=2, paid_at=AT, payment_id="p")
    for _ in range(2):
        for handler in effect_handlers().values():
            handler.handle([message_of("ORDER_PAID", order)])

    assert rows("SELECT count(*) FROM orders_effect") == [(4,)]
    assert rows("SELECT count(*) FROM orders_notification") == [(1,)]


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_a_refund_takes_back_what_the_payment_gave_in_either_order(order):
    life = life_of()
    for place in order:
        for handler in effect_handlers().values():
            handler.handle([life[place]])

    assert rows(
        "SELECT consumer_group, sum(value)::int, count(*)::int FROM orders_effect"
        " WHERE unit <> 'SCORE' GROUP BY 1 ORDER BY 1"
    ) == [
        ("CG_SECKILL_INVOICE_V1", 0, 2),
        ("CG_SECKILL_POINTS_V1", 0, 2),
        ("CG_SECKILL_SETTLEMENT_V1", 0, 2),
    ]
    assert rows("SELECT source_type FROM orders_notification ORDER BY 1") == [
        ("ORDER_PAID",),
        ("ORDER_REFUNDED",),
    ]


def test_two_consumers_with_the_same_batch_at_once_make_each_effect_once():
    batch = [life_of(f"u{n}")[1] for n in range(20)]
    handler = effect_handlers()[CG_SETTLEMENT]

    answers = at_once(
        [lambda: list(handler.handle(batch)), lambda: list(handler.handle(batch[::-1]))]
    )

    assert not [a for a in answers if isinstance(a, Exception)]
    assert sum(answer.count(DONE) for answer in answers) == 20
    assert rows("SELECT count(*) FROM orders_effect") == [(20,)]


def test_inbox_and_effect_are_one_transaction():
    paid = life_of()[1]
    handler = effect_handlers()[CG_POINTS]

    class Broken(points.Points):
        def write(self, events, *, now):
            super().write(events, now=now)
            raise RuntimeError("after the effect, before the commit")

    with pytest.raises(RuntimeError):
        EffectHandler(Broken()).handle([paid])
    assert (rows(INBOX), rows(EFFECTS)) == ([], [])

    assert list(handler.handle([paid])) == [DONE]


def test_an_odd_payment_is_flagged_for_people():
    order = order_of(
        status="PAID",
        version=2,
        quantity=5,
        amount_cents=500_000,
        paid_at=AT + timedelta(minutes=16),
        payment_id="p",
    )
    effect_handlers()[CG_RISK].handle([message_of("ORDER_PAID", order)])
    assert rows("SELECT value, detail->'flags' FROM orders_effect") == [
        (3, '["LARGE_AMOUNT", "MANY_UNITS", "PAID_LATE"]')
    ]


def test_the_side_groups_are_all_that_are_not_core():
    from seckill.management.commands.run_consumer import _groups

    side = {spec.name for spec in _groups([], all_core=False, side=True)}
    assert side == {*GROUPS, CG_AUDIT}
    assert not side & {spec.name for spec in _groups([], all_core=True, side=False)}


class Failing(EffectHandler):
    """The points group of a bad day: raises until it is told that the day is over."""

    def __init__(self) -> None:
        super().__init__(points.EFFECT)
        self.over = threading.Event()
        self.raised = 0

    def handle(self, messages):
        if not self.over.is_set():
            self.raised += 1
            raise RuntimeError("points are broken")
        return super().handle(messages)


@pytest.mark.usefixtures("own_topics")
def test_a_broken_group_holds_no_other_and_makes_up_for_it_later():
    """Real broker: points raise; settlement, invoice, notify, risk and archive have no lag."""
    paid = [life_of(f"u{n}")[1] for n in range(30)]
    producer = broker().producer()
    sent = producer.send(
        [
            OutgoingMessage(
                topic=ORDER_EVENT,
                message_id=message.message_id,
                body=message.body,
                tag=message.tag,
                keys=(event_of(message).order_id,),
                properties={"message_id": message.message_id},
            )
            for message in paid
        ],
        timeout_ms=5_000,
    )
    producer.close()
    assert sent.outcome is SendOutcome.CONFIRMED

    broken = Failing()
    options = LoopOptions(
        batch_max=128, invisible_s=2, min_left_s=1, wait_s=2, ack_timeout_ms=3000, pollers=1
    )
    stop = StopSignal()
    table = {**handlers(), CG_POINTS: broken}

    def consume(name):
        spec = topology.group_spec(name)
        receiver = broker().receiver(group=spec.name, topic=spec.topic, tags=spec.tags)
        try:
            run_loop(spec, table[name], receiver, stop, options=options)
        finally:
            connections.close_all()

    ours = [message.message_id for message in paid]
    inbox = INBOX.replace("GROUP BY", "WHERE message_id = ANY(%s) GROUP BY")
    archived = "SELECT count(*) FROM messaging_event_archive WHERE event_id = ANY(%s)"

    def counts():
        return dict(rows(inbox, ours)), rows(archived, ours)[0][0]

    threads = [threading.Thread(target=consume, args=(name,)) for name in [*GROUPS, CG_AUDIT]]
    for thread in threads:
        thread.start()
    try:
        healthy = {name: 30 for name in GROUPS if name != CG_POINTS}
        poll(
            lambda: counts() == (healthy, 30) and broken.raised,
            timeout_s=30,
            what=f"all groups but points have their 30: {counts()}",
        )
        assert rows("SELECT count(*) FROM orders_effect WHERE unit = 'POINT'") == [(0,)]
        broken.over.set()
        poll(
            lambda: counts()[0] == dict.fromkeys(GROUPS, 30),
            timeout_s=40,
            what="points made up for it",
        )
    finally:
        stop.set()
        for thread in threads:
            thread.join(20)
    assert rows("SELECT count(*), sum(value) FROM orders_effect WHERE unit = 'POINT'") == [
        (30, 30 * 19)
    ]
    assert not {row[0] for row in rows("SELECT message_id FROM messaging_quarantine")} & set(ours)


def test_the_group_of_docs_effects_md_works_as_it_stands(monkeypatch):
    """The page's steps: one file, one row. Its code block is run here, character by character."""
    page = (Path(__file__).parents[3] / "docs" / "effects.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert "`_effect(CG_COUPON" in page
    name = "CG_SECKILL_COUPON_V1"
    row = topology._effect(name, key="(group, event, order, rule version)")
    monkeypatch.setattr(topology, "CG_COUPON", name, raising=False)
    found = problems(topics=topology.TOPICS, groups=[*topology.GROUPS, row], prefix="DEV_SECKILL_")
    assert list(found) == []
    namespace: dict[str, object] = {}
    exec(compile(textwrap.dedent(block), "orders/effects/coupon.py", "exec"), namespace)  # noqa: S102
    handler = EffectHandler(namespace["EFFECT"])

    life = life_of()
    assert list(handler.handle(life[1:])) == [DONE, DONE]
    assert list(handler.handle(life[1:])) == [DUPLICATE, DUPLICATE]

    assert rows(EFFECTS) == [(name, 19, "EUR"), (name, -19, "EUR")]

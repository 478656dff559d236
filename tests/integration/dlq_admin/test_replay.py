"""From a dead message to a proven repair: one business effect, whatever happens on the way."""

import pytest

from dlq_admin import replay
from dlq_admin.audit.verify import verify
from dlq_admin.models import AuditEvent, ReplayItem
from dlq_admin.replay import selectors
from dlq_admin.replay.refusals import PlanRefused, StaleState
from dlq_admin.replay.worker import run_round
from dlq_admin.selectors.messages import message_view
from dlq_admin.states import BatchStatus, ItemStatus
from messaging import quarantine
from messaging.consumer import GroupConsumer
from messaging.disposition import DONE, DUPLICATE
from messaging.inflow import LoopOptions
from messaging.pulse import Pulse
from messaging.replays import PROPERTY_COUNT, PROPERTY_GROUP, PROPERTY_ID
from messaging.topology import CG_ORDER_CREATE, CG_POINTS, CG_SETTLEMENT, group_spec
from messaging.worker import StopSignal
from orders.touched import check_touched
from tests.fixtures.dlq import (
    Desk,
    Lost,
    batch_status,
    consume,
    delivered,
    execute_as_owner,
    item,
    one_order,
    publish,
    work_off,
)
from tests.fixtures.sales import (
    create_message,
    open_sale,
    outbox_messages,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]


def test_a_dead_message_is_replayed_once_and_proven(desk: Desk, lost: Lost) -> None:
    sale, reservation, dead = lost
    batch_id = desk.approved(dead)
    assert item(dead).status == ItemStatus.APPROVED
    assert sale.orders() == 0

    run_round()
    assert item(dead).status == ItemStatus.SENDING
    assert batch_status(batch_id) == BatchStatus.CANARY
    (sent,) = publish()
    assert sent.message_id == reservation.message_id  # the original id
    assert sent.body == create_message(reservation).body
    assert sent.properties[PROPERTY_ID] == item(dead).replay_id
    assert sent.properties[PROPERTY_COUNT] == "1"
    assert sent.properties[PROPERTY_GROUP] == CG_ORDER_CREATE
    run_round()
    assert item(dead).status == ItemStatus.SENT
    consume([sent])
    run_round()

    assert item(dead).status == ItemStatus.VERIFIED
    assert one_order(sale)
    assert batch_status(batch_id) == BatchStatus.COMPLETED
    assert sale.quarantine_row(reservation)[0] == "RESOLVED"
    assert check_touched([reservation.reservation_id]).breaches == ()
    assert type(dead).objects.get(pk=dead.pk).resolution == "VERIFIED"
    (look, *_) = selectors.invariant_runs(desk.ticket.pk)
    assert look.passed
    assert look.fresh
    assert verify(ticket_id=desk.ticket.pk).ok
    kinds = AuditEvent.objects.filter(chain=desk.ticket.pk).order_by("seq")
    assert list(kinds.values_list("kind", flat=True)) == [
        "REPLAY_PLANNED", "BATCH_PENDING_APPROVAL", "REPLAY_APPROVED_BY", "BATCH_APPROVED",
        "BATCH_CANARY", "REPLAY_STARTED", "ITEM_SENDING", "ITEM_PROCESSED_OK", "ITEM_VERIFIED",
        "BATCH_COMPLETED", "REPLAY_FINISHED",
    ]  # fmt: skip


def test_the_original_is_redelivered_while_the_replay_is_on_its_way(desk: Desk, lost: Lost) -> None:
    sale, reservation, dead = lost
    desk.approved(dead)
    run_round()
    (sent,) = publish()

    sale.deliver(reservation, attempt=3)  # the original wins
    assert consume([sent]) == [DUPLICATE]
    run_round()
    run_round()

    assert item(dead).status == ItemStatus.VERIFIED
    assert one_order(sale)


def test_the_original_settles_it_before_the_replay_is_sent(desk: Desk, lost: Lost) -> None:
    sale, reservation, dead = lost
    batch_id = desk.approved(dead)
    sale.deliver(reservation)

    run_round()

    assert item(dead).status == ItemStatus.STALE
    assert item(dead).status_reason == "NOOP: ORDER_EXISTS"
    assert all(PROPERTY_ID not in message.properties for message in publish())
    assert one_order(sale)
    run_round()
    assert batch_status(batch_id) == BatchStatus.COMPLETED_WITH_FAILURES


def test_a_message_cannot_be_in_two_open_batches(desk: Desk, lost: Lost) -> None:
    dead = lost.dead
    desk.plan(dead)
    with pytest.raises(PlanRefused, match="IN_ANOTHER_BATCH"):
        desk.plan(dead)
    assert ReplayItem.objects.count() == 1


def test_a_replay_of_what_was_replayed_changes_nothing(desk: Desk, lost: Lost) -> None:
    sale, _, dead = lost
    desk.approved(dead)
    work_off()
    assert item(dead).status == ItemStatus.VERIFIED
    with pytest.raises(PlanRefused, match="NOT_OPEN"):
        desk.plan(dead)  # it has ended

    execute_as_owner(  # as if it had died once more
        "UPDATE dlq_message SET status = 'OPEN', resolution = '', closed_at = NULL"
    )
    desk.approved(dead)
    work_off()

    second = item(dead)
    assert (second.verdict, second.replay_count) == ("NOOP", 2)
    shown = message_view(second.message_id)
    assert shown is not None
    assert shown.replays == 2
    assert second.status == ItemStatus.VERIFIED
    assert second.evidence["outcome"] == ItemStatus.PROCESSED_IDEMPOTENT
    assert one_order(sale)


def test_a_reject_is_a_result(desk: Desk) -> None:
    sale = open_sale(units=1, gate_units=2)
    first, second = sale.reserve_all(["ann", "bob"])
    dead = desk.dead(sale, second)
    sale.deliver(first)
    planned = desk.plan(dead)
    assert item(dead).verdict == "WILL_REJECT"
    desk.approve(planned)
    work_off()

    assert item(dead).status == ItemStatus.VERIFIED
    assert item(dead).evidence["outcome"] == ItemStatus.BUSINESS_REJECTED
    assert sale.outcome(second)[:2] == ("REJECTED", "NO_FINAL_STOCK")


def test_a_failed_invariant_fails_the_item_and_pauses_the_batch(desk: Desk) -> None:
    sale = open_sale(units=10)
    first, second = sale.reserve_all(["ann", "bob"])
    dead, other = desk.dead(sale, first), desk.dead(sale, second)
    batch_id = desk.approved(dead, other)
    run_round()
    consume(publish())
    execute_as_owner("UPDATE inventory_stock SET available = available + 1")
    run_round()

    assert item(dead).status == ItemStatus.VERIFY_FAILED
    assert batch_status(batch_id) == BatchStatus.PAUSED
    assert item(other).status == ItemStatus.APPROVED
    assert not selectors.invariant_runs(desk.ticket.pk)[0].passed


def test_an_expired_plan_is_never_sent(desk: Desk, lost: Lost) -> None:
    dead = lost.dead
    planned = desk.plan(dead)
    execute_as_owner("UPDATE dlq_admin_replay_batch SET expires_at = now() - interval '1 second'")
    with pytest.raises(StaleState, match="expired"):
        replay.request_approval(batch_id=planned.batch_id, user=desk.operator)
    run_round()
    assert batch_status(planned.batch_id) == BatchStatus.EXPIRED
    assert item(dead).status == ItemStatus.EXPIRED
    assert desk.plan(dead).batch_id != planned.batch_id  # it may be planned again


def test_a_replay_has_an_effect_in_its_own_group_only(desk: Desk) -> None:
    """Case 32 of the public bugs: a replay for group A on a topic that B also reads."""
    sale = open_sale(units=5)
    sale.deliver(sale.reserve("ann"))
    (event,) = outbox_messages("ORDER_EVENT_V1", tag="ORDER_CREATED")
    quarantine.store([quarantine.entry_of(event, group=CG_POINTS, reason="BUG")])
    dead = desk.captured(event, group=CG_POINTS)
    execute_as_owner("DELETE FROM messaging_outbox")
    desk.approved(dead)
    run_round()
    (sent,) = publish()
    assert sent.properties[PROPERTY_GROUP] == CG_POINTS

    seen: dict[str, list] = {CG_POINTS: [], CG_SETTLEMENT: []}
    acked: dict[str, list] = {CG_POINTS: [], CG_SETTLEMENT: []}
    for group in seen:

        class Handler:
            def handle(self, messages, group=group):
                seen[group] += [m.message_id for m in messages]
                return [DONE] * len(messages)

        class Receiver:
            def ack(self, messages, *, timeout_ms, group=group):
                acked[group] += [m.message_id for m in messages]
                return []

            def close(self):
                pass

        consumer = GroupConsumer(
            group=group_spec(group), handler=Handler(), receiver=Receiver(), stop=StopSignal(),
            pulse=Pulse(), options=LoopOptions.from_settings(),
        )  # fmt: skip
        consumer.work([delivered(sent)])
        consumer._acks.close()

    assert seen == {CG_POINTS: [dead.message_id], CG_SETTLEMENT: []}
    assert acked == {CG_POINTS: [dead.message_id], CG_SETTLEMENT: [dead.message_id]}


def test_the_evidence_is_kept_whatever_becomes_of_the_replay(desk: Desk, lost: Lost) -> None:
    """Case 33 of the public bugs: the copy is never deleted before the effect is proven."""
    sale, _, dead = lost
    desk.approved(dead)
    run_round()  # and the worker dies here, the sender too
    assert item(dead).status == ItemStatus.SENDING
    assert quarantine.held(group=CG_ORDER_CREATE, message_ids=[dead.message_id])
    assert bytes(type(dead).objects.get(pk=dead.pk).body) == bytes(dead.body)

    first, second = publish(), publish()
    assert (len(first), len(second)) == (1, 0)
    consume(first)
    consume(first)  # one extra delivery
    work_off(rounds=2)

    assert item(dead).status == ItemStatus.VERIFIED
    assert sale.orders() == 1

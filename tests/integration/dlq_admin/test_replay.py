"""From a dead message to a proven repair: one business effect, whatever happens on the way."""

import pytest

from dlq_admin import dry_run, replay
from dlq_admin.audit.verify import verify
from dlq_admin.models import AuditEvent, ReplayItem
from dlq_admin.replay import selectors
from dlq_admin.replay.refusals import ApprovalRefused, PlanRefused, StaleState
from dlq_admin.replay.worker import run_round
from dlq_admin.states import BatchStatus, Disposition, ItemStatus
from messaging import quarantine
from messaging.broker.base import FailureClass, SendOutcome, SendResult
from messaging.disposition import DUPLICATE
from messaging.replays import PROPERTY_COUNT, PROPERTY_GROUP, PROPERTY_ID
from messaging.topology import CG_ORDER_CREATE
from orders.touched import check_touched
from tests.fixtures.dlq import (
    PASSWORD,
    Desk,
    batch_status,
    consume,
    delivered,
    execute_as_owner,
    item,
    later,
    publish,
    work_off,
)
from tests.fixtures.sales import FakeProducer, Sale, create_message, open_sale, wait_past

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]

UNKNOWN = SendResult(outcome=SendOutcome.UNKNOWN, code="TIMEOUT")
DOWN = SendResult(
    outcome=SendOutcome.DEFINITE_FAILURE, failure=FailureClass.RETRY_LATER, code="UNAVAILABLE"
)


def one_order(sale: Sale, reservation: object) -> bool:
    return sale.orders() == 1 and sale.available() == 9 and sale.ledger_sum() == 9


def test_a_dead_message_is_replayed_once_and_proven(desk: Desk) -> None:
    sale = open_sale(units=10)
    reservation = sale.reserve("ann")
    dead = desk.dead(sale, reservation)
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
    assert one_order(sale, reservation)
    assert batch_status(batch_id) == BatchStatus.COMPLETED
    assert sale.quarantine_row(reservation)[0] == "RESOLVED"
    assert check_touched([reservation.reservation_id]).breaches == ()
    proof = selectors.proof_of(desk.ticket.pk)
    assert (proof.open_items, proof.bad, proof.good) == (0, frozenset(), {dead.pk})
    assert proof.invariants_fresh
    assert verify(ticket_id=desk.ticket.pk).ok
    kinds = AuditEvent.objects.filter(chain=desk.ticket.pk).order_by("seq")
    assert list(kinds.values_list("kind", flat=True)) == [
        "REPLAY_PLANNED", "BATCH_PENDING_APPROVAL", "REPLAY_APPROVED_BY", "BATCH_APPROVED",
        "BATCH_CANARY", "REPLAY_STARTED", "ITEM_SENDING", "ITEM_PROCESSED_OK", "ITEM_VERIFIED",
        "BATCH_COMPLETED", "REPLAY_FINISHED",
    ]  # fmt: skip


def test_the_original_is_redelivered_while_the_replay_is_on_its_way(desk: Desk) -> None:
    sale = open_sale(units=10)
    reservation = sale.reserve("ann")
    dead = desk.dead(sale, reservation)
    desk.approved(dead)
    run_round()
    (sent,) = publish()

    sale.deliver(reservation, attempt=3)  # the original wins
    assert consume([sent]) == [DUPLICATE]
    run_round()
    run_round()

    assert item(dead).status == ItemStatus.VERIFIED
    assert one_order(sale, reservation)


def test_the_original_settles_it_before_the_replay_is_sent(desk: Desk) -> None:
    sale = open_sale(units=10)
    reservation = sale.reserve("ann")
    dead = desk.dead(sale, reservation)
    batch_id = desk.approved(dead)
    sale.deliver(reservation)

    run_round()

    assert item(dead).status == ItemStatus.STALE
    assert item(dead).status_reason == "NOOP: ORDER_EXISTS"
    assert all(PROPERTY_ID not in message.properties for message in publish())
    assert one_order(sale, reservation)
    run_round()
    assert batch_status(batch_id) == BatchStatus.COMPLETED_WITH_FAILURES


def test_a_message_cannot_be_in_two_open_batches(desk: Desk) -> None:
    sale = open_sale(units=10)
    dead = desk.dead(sale, sale.reserve("ann"))
    desk.plan(dead)
    with pytest.raises(PlanRefused, match="IN_ANOTHER_BATCH"):
        desk.plan(dead)
    assert ReplayItem.objects.count() == 1


def test_a_replay_of_what_was_replayed_changes_nothing(desk: Desk) -> None:
    sale = open_sale(units=10)
    reservation = sale.reserve("ann")
    dead = desk.dead(sale, reservation)
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
    assert second.status == ItemStatus.VERIFIED
    assert second.evidence["outcome"] == ItemStatus.PROCESSED_IDEMPOTENT
    assert one_order(sale, reservation)


def test_an_unknown_send_is_looked_up_before_it_is_sent_again(desk: Desk) -> None:
    sale = open_sale(units=10)
    reservation = sale.reserve("ann")
    dead = desk.dead(sale, reservation)
    desk.approved(dead)
    run_round()
    (sent,) = publish(FakeProducer(outcomes=[UNKNOWN]))
    run_round()
    assert item(dead).status == ItemStatus.SEND_UNKNOWN
    assert publish() == []  # the outbox does not try again by itself
    assert quarantine.held(group="OUTBOX", message_ids=[reservation.message_id]) == set()

    consume([sent])  # it had been stored after all
    run_round()

    assert item(dead).status == ItemStatus.VERIFIED
    assert item(dead).send_tries == 1
    assert one_order(sale, reservation)


def test_an_unknown_send_is_repeated_three_times_then_it_failed_again(desk: Desk) -> None:
    sale = open_sale(units=10)
    dead = desk.dead(sale, sale.reserve("ann"))
    batch_id = desk.approved(dead)
    run_round()
    for _ in range(3):
        publish(FakeProducer(outcomes=[UNKNOWN]))
        run_round()
        assert item(dead).status == ItemStatus.SEND_UNKNOWN
        run_round()
        assert item(dead).status == ItemStatus.SEND_UNKNOWN  # not before the window has passed
        later(dead)
        run_round()

    assert item(dead).status == ItemStatus.FAILED_AGAIN
    assert item(dead).send_tries == 3
    assert sale.orders() == 0
    assert batch_status(batch_id) == BatchStatus.COMPLETED_WITH_FAILURES


def test_the_broker_is_down_during_a_batch(desk: Desk) -> None:
    sale = open_sale(units=10)
    dead = [desk.dead(sale, one) for one in sale.reserve_all(["ann", "bob", "eve"])]
    batch_id = desk.approved(*dead, canary_size=3)
    run_round()
    publish(FakeProducer(outcomes=[DOWN]))
    run_round()
    assert {item(one).status for one in dead} == {ItemStatus.SEND_FAILED}
    assert batch_status(batch_id) == BatchStatus.CANARY
    for one in dead:
        later(one)
    run_round()
    sent = publish(FakeProducer(outcomes=[UNKNOWN]))  # back, but the answer is lost
    run_round()
    assert {item(one).status for one in dead} == {ItemStatus.SEND_UNKNOWN}
    consume(sent[:2])  # one of the three was not stored
    run_round()
    assert [item(one).status for one in dead].count(ItemStatus.VERIFIED) == 2
    for one in dead:
        later(one)
    work_off(rounds=3)

    assert {item(one).status for one in dead} == {ItemStatus.VERIFIED}
    assert sorted(item(one).send_tries for one in dead) == [2, 2, 3]
    assert batch_status(batch_id) == BatchStatus.COMPLETED
    assert (sale.orders(), sale.available()) == (3, 7)


def test_a_replay_that_dies_again_is_told_from_the_original(desk: Desk) -> None:
    sale = open_sale(units=10)
    reservation = sale.reserve("ann")
    dead = desk.dead(sale, reservation)
    desk.approved(dead)
    run_round()
    (sent,) = publish()
    run_round()

    sale.hold(reservation)  # the original dies once more: says nothing about the replay
    run_round()
    assert item(dead).status == ItemStatus.SENT
    quarantine.store(
        [quarantine.entry_of(delivered(sent), group=CG_ORDER_CREATE, reason="STILL_BROKEN")]
    )
    run_round()

    assert item(dead).status == ItemStatus.FAILED_AGAIN
    assert item(dead).status_reason == "STILL_BROKEN"
    assert sale.quarantine_row(reservation)[0] == "OPEN"


def test_a_published_replay_without_an_outcome_is_sent_again(desk: Desk) -> None:
    sale = open_sale(units=10)
    reservation = sale.reserve("ann")
    dead = desk.dead(sale, reservation)
    desk.approved(dead)
    run_round()
    publish()  # and then the broker loses it
    run_round()
    later(dead)
    run_round()
    assert item(dead).status == ItemStatus.SEND_UNKNOWN
    later(dead)
    run_round()
    work_off(rounds=3)

    assert item(dead).status == ItemStatus.VERIFIED
    assert item(dead).send_tries == 2
    assert one_order(sale, reservation)


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


def test_an_expired_reservation_needs_the_incident_lead_and_an_extension_row(desk: Desk) -> None:
    sale = open_sale(units=10, validity_ms=1)
    reservation = sale.reserve("ann")
    dead = desk.dead(sale, reservation)
    wait_past(reservation)
    with pytest.raises(PlanRefused, match="RESERVATION_EXPIRED"):
        desk.plan(dead)

    planned = desk.plan(dead, extension_s=600)
    replay.request_approval(batch_id=planned.batch_id, user=desk.operator)
    waits = replay.approve(
        batch_id=planned.batch_id,
        plan_hash=planned.plan_hash,
        password=PASSWORD,
        user=desk.approver,
    )
    assert waits is BatchStatus.PENDING_APPROVAL
    assert selectors.still_missing(planned.batch_id) == "an incident lead's approval"
    done = replay.approve(
        batch_id=planned.batch_id, plan_hash=planned.plan_hash, password=PASSWORD, user=desk.lead
    )
    assert done is BatchStatus.APPROVED
    work_off()

    assert item(dead).status == ItemStatus.VERIFIED
    assert one_order(sale, reservation)
    assert AuditEvent.objects.filter(kind="EXTENSION_GRANTED", user=desk.lead).count() == 1


def test_no_extension_when_the_gate_names_another(desk: Desk) -> None:
    sale = open_sale(units=10, validity_ms=1)
    reservation = sale.reserve("ann")
    dead = desk.dead(sale, reservation)
    wait_past(reservation)
    planned = desk.plan(dead, extension_s=600)
    replay.request_approval(batch_id=planned.batch_id, user=desk.operator)
    from inventory import verbs
    from inventory.contracts import ReleaseItem
    from inventory.gate import gate

    gate().run(
        verbs.release(
            activity_id=sale.activity_id,
            items=[
                ReleaseItem(
                    reservation_id=reservation.reservation_id,
                    sku_id=sale.sku_id,
                    user_id="ann",
                    quantity=1,
                    restock=True,
                    reason="",
                )
            ],
        )
    )

    with pytest.raises(ApprovalRefused, match="does not know"):
        replay.approve(
            batch_id=planned.batch_id,
            plan_hash=planned.plan_hash,
            password=PASSWORD,
            user=desk.lead,
        )
    assert batch_status(planned.batch_id) == BatchStatus.PENDING_APPROVAL
    seen = dry_run.dry_run(
        message_pk=dead.pk, disposition=Disposition.REPLAY, user=desk.operator, extension_s=600
    )
    assert (seen.verdict, seen.reason) == ("BLOCKED", "GATE_NAMES_ANOTHER")


def test_compensate_rejects_and_gives_back_in_one_transaction(desk: Desk) -> None:
    sale = open_sale(units=10)
    reservation = sale.reserve("ann")
    dead = desk.dead(sale, reservation)
    batch_id = desk.approved(dead, disposition=Disposition.COMPENSATE)
    run_round()
    run_round()

    assert item(dead).status == ItemStatus.COMPENSATED
    assert batch_status(batch_id) == BatchStatus.COMPLETED
    assert sale.outcome(reservation)[:2] == ("REJECTED", "COMPENSATED")
    assert (sale.gate_stock(), sale.orders()) == (10, 0)
    assert sale.quarantine_row(reservation)[0] == "RESOLVED"
    assert selectors.proof_of(desk.ticket.pk).good == {dead.pk}


def test_discard_is_refused_while_its_reservation_is_held(desk: Desk) -> None:
    sale = open_sale(units=10)
    reservation = sale.reserve("ann")
    dead = desk.dead(sale, reservation)
    with pytest.raises(PlanRefused, match="STILL_HELD"):
        desk.plan(dead, disposition=Disposition.DISCARD)
    sale.deliver(reservation)
    sale.hold(reservation)  # dies once more, with its order made

    desk.approved(dead, disposition=Disposition.DISCARD)
    run_round()

    assert item(dead).status == ItemStatus.DISCARDED
    assert sale.orders() == 1
    assert sale.quarantine_row(reservation)[0] == "RESOLVED"


def test_inbox_created_without_order_is_a_breach_and_is_never_replayed(desk: Desk) -> None:
    sale = open_sale(units=10)
    reservation = sale.reserve("ann")
    dead = desk.dead(sale, reservation)
    sale.deliver(reservation)
    execute_as_owner("DELETE FROM orders_order")
    seen = dry_run.dry_run(message_pk=dead.pk, disposition=Disposition.REPLAY, user=desk.operator)
    assert (seen.verdict, seen.reason) == ("BREACH", "INBOX_CREATED_WITHOUT_ORDER")
    with pytest.raises(PlanRefused, match="BREACH"):
        desk.plan(dead)


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
    assert selectors.proof_of(desk.ticket.pk).verify_failed
    assert not selectors.proof_of(desk.ticket.pk).invariants_fresh


def test_an_expired_plan_is_never_sent(desk: Desk) -> None:
    sale = open_sale(units=10)
    dead = desk.dead(sale, sale.reserve("ann"))
    planned = desk.plan(dead)
    execute_as_owner("UPDATE dlq_admin_replay_batch SET expires_at = now() - interval '1 second'")
    with pytest.raises(StaleState, match="expired"):
        replay.request_approval(batch_id=planned.batch_id, user=desk.operator)
    run_round()
    assert batch_status(planned.batch_id) == BatchStatus.EXPIRED
    assert item(dead).status == ItemStatus.EXPIRED
    assert desk.plan(dead).batch_id != planned.batch_id  # it may be planned again

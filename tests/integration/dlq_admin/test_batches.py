"""Batches: frozen selection, canary, rate, pause and abort that bite, brakes, one a group."""

from datetime import timedelta

import pytest
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from dlq_admin import permissions, replay
from dlq_admin.models import AuditEvent, ReplayBatch, ReplayItem
from dlq_admin.replay import selectors
from dlq_admin.replay.limits import Pressure
from dlq_admin.replay.progress import progress
from dlq_admin.replay.refusals import ApprovalRefused, PlanRefused, StaleState
from dlq_admin.replay.worker import run_round
from dlq_admin.states import BatchStatus, Disposition, ItemStatus
from messaging import quarantine
from messaging.consumer import GroupConsumer
from messaging.disposition import DONE
from messaging.inflow import LoopOptions
from messaging.pulse import Pulse
from messaging.replays import PROPERTY_GROUP
from messaging.topology import CG_ORDER_CREATE, CG_POINTS, CG_SETTLEMENT, group_spec
from messaging.worker import StopSignal
from tests.fixtures.dlq import (
    PASSWORD,
    Desk,
    batch_status,
    consume,
    delivered,
    execute_as_owner,
    item,
    person,
    publish,
    work_off,
)
from tests.fixtures.sales import at_once, open_sale, outbox_messages

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]


def dead_ones(desk: Desk, count: int) -> tuple:
    sale = open_sale(units=100)
    made = sale.reserve_all([f"user{n}" for n in range(count)])
    return sale, [desk.dead(sale, one) for one in made]


def counts(batch_id: int) -> dict[str, int]:
    return dict(progress(batch_id).by_status)


def a_second_later() -> None:
    execute_as_owner(
        "UPDATE dlq_admin_replay_item SET sent_at = sent_at - interval '2 seconds'"
        " WHERE sent_at IS NOT NULL"
    )


def test_select_all_freezes_what_was_there(desk: Desk) -> None:
    """Case 31 of the public bugs: new rows arrive after the selection was made."""
    sale, dead = dead_ones(desk, 4)
    desk.plan(dead[0])  # in another open batch
    planned = replay.plan_all(
        ticket_id=desk.ticket.pk, disposition=Disposition.REPLAY, user=desk.operator, reason="all",
        rate_cap=100,
    )  # fmt: skip
    assert (planned.items, planned.matched) == (3, 4)
    assert planned.excluded == {"IN_ANOTHER_BATCH": 1}

    late = desk.dead(sale, sale.reserve("late"))
    desk.approve(planned)
    work_off()

    assert batch_status(planned.batch_id) == BatchStatus.COMPLETED
    assert {one.message_id for one in ReplayItem.objects.filter(batch_id=planned.batch_id)} == {
        message.pk for message in dead[1:]
    }
    assert sale.orders() == 3
    assert not ReplayItem.objects.filter(message=late).exists()


def test_a_double_submit_plans_once(desk: Desk) -> None:
    _, dead = dead_ones(desk, 2)
    first = desk.plan(*dead, idempotency_key="form-1")
    assert desk.plan(*dead, idempotency_key="form-1") == first
    assert ReplayBatch.objects.count() == 1
    with pytest.raises(PlanRefused, match="another plan"):
        replay.plan_all(
            ticket_id=desk.ticket.pk + 1, disposition=Disposition.REPLAY, user=desk.operator,
            reason="x", idempotency_key="form-1",
        )  # fmt: skip


def test_the_canary_goes_first_and_must_be_verified(desk: Desk) -> None:
    sale, dead = dead_ones(desk, 5)
    batch_id = desk.approved(*dead, canary_size=2)
    run_round()
    run_round()
    assert counts(batch_id) == {"SENDING": 2, "APPROVED": 3}
    sent = publish()
    run_round()
    assert counts(batch_id) == {"SENT": 2, "APPROVED": 3}
    consume(sent)
    run_round()
    assert batch_status(batch_id) == BatchStatus.RUNNING
    assert counts(batch_id)["SENDING"] == 3
    work_off()
    assert batch_status(batch_id) == BatchStatus.COMPLETED
    assert sale.orders() == 5


def test_a_failed_canary_pauses_and_only_the_lead_goes_on(desk: Desk) -> None:
    sale, dead = dead_ones(desk, 3)
    batch_id = desk.approved(*dead)
    run_round()
    (sent,) = publish()
    quarantine.store(
        [quarantine.entry_of(delivered(sent), group=CG_ORDER_CREATE, reason="STILL_BROKEN")]
    )
    run_round()
    run_round()
    assert batch_status(batch_id) == BatchStatus.PAUSED
    assert ReplayBatch.objects.get(pk=batch_id).status_reason == "CANARY_FAILED"
    work_off(rounds=2)
    assert counts(batch_id) == {"FAILED_AGAIN": 1, "APPROVED": 2}

    with pytest.raises(PermissionDenied):
        replay.resume(batch_id=batch_id, user=desk.operator, reason="again")
    replay.resume(batch_id=batch_id, user=desk.lead, reason="the fix is out now")
    assert batch_status(batch_id) == BatchStatus.CANARY
    work_off()

    assert batch_status(batch_id) == BatchStatus.COMPLETED_WITH_FAILURES
    assert counts(batch_id) == {"FAILED_AGAIN": 1, "VERIFIED": 2}
    assert sale.orders() == 2


def test_the_worker_is_at_most_a_second_ahead_and_pause_bites(desk: Desk) -> None:
    sale, dead = dead_ones(desk, 12)
    batch_id = desk.approved(*dead, rate_cap=4)
    work_off(rounds=2)
    assert batch_status(batch_id) == BatchStatus.RUNNING
    a_second_later()
    for _ in range(3):
        run_round()
    assert counts(batch_id)["SENDING"] == 4  # nobody publishes: not one more
    a_second_later()
    run_round()
    assert counts(batch_id)["SENDING"] == 4

    replay.pause(batch_id=batch_id, user=desk.operator, reason="look first")
    a_second_later()
    consume(publish())
    run_round()
    done = counts(batch_id)["VERIFIED"]
    for _ in range(3):
        a_second_later()
        work_off(rounds=1)
    assert counts(batch_id)["VERIFIED"] == done
    assert sale.orders() == done


def test_the_live_rate_changes_while_it_runs_and_never_passes_the_cap(desk: Desk) -> None:
    _, dead = dead_ones(desk, 30)
    batch_id = desk.approved(*dead, rate_cap=8)
    work_off(rounds=2)
    consume(publish())
    with pytest.raises(PlanRefused, match="were approved"):
        replay.set_rate(batch_id=batch_id, user=desk.operator, rate=9)
    with pytest.raises(PermissionDenied):
        replay.set_rate(batch_id=batch_id, user=desk.approver, rate=1)
    replay.set_rate(batch_id=batch_id, user=desk.operator, rate=0)
    a_second_later()
    assert run_round() == 0
    replay.set_rate(batch_id=batch_id, user=desk.operator, rate=2)
    assert run_round() == 2


def test_the_governor_throttles_and_stops(desk: Desk) -> None:
    _, dead = dead_ones(desk, 40)
    batch_id = desk.approved(*dead, rate_cap=8)
    work_off(rounds=2)
    consume(publish())
    a_second_later()
    slow = Pressure(share=0.25, reason="THROTTLE: lag")
    assert run_round(slow) == 2
    assert batch_status(batch_id) == BatchStatus.THROTTLED
    assert selectors.batch(batch_id).governor_rate == 2
    a_second_later()
    consume(publish())
    assert run_round(Pressure(share=0.0, reason="FAIL_CLOSED")) == 0
    assert run_round() > 0
    assert batch_status(batch_id) == BatchStatus.RUNNING


@pytest.mark.parametrize(
    ("pressure", "why"),
    [
        (Pressure(database_share=0.81), "DATABASE_BUDGET: 81% used"),
        (Pressure(tx_p95_s=1.5), "TRANSACTION_P95: 1.50 s"),
        (Pressure(lag_s=5.5), "LAG: 5.5 s"),
    ],
)
def test_a_batch_pauses_by_itself(desk: Desk, pressure: Pressure, why: str) -> None:
    _, dead = dead_ones(desk, 3)
    batch_id = desk.approved(*dead)
    run_round(pressure)
    assert batch_status(batch_id) == BatchStatus.PAUSED
    assert ReplayBatch.objects.get(pk=batch_id).status_reason == why
    assert counts(batch_id) == {"APPROVED": 3}


def test_abort_cancels_what_was_not_sent_and_settles_what_was(desk: Desk) -> None:
    sale, dead = dead_ones(desk, 4)
    batch_id = desk.approved(*dead)
    run_round()
    replay.abort(batch_id=batch_id, user=desk.lead, reason="wrong fix")
    assert counts(batch_id) == {"SENDING": 1, "CANCELLED": 3}
    work_off(rounds=3)

    assert counts(batch_id) == {"VERIFIED": 1, "CANCELLED": 3}
    assert batch_status(batch_id) == BatchStatus.ABORTED
    assert sale.orders() == 1
    assert ReplayBatch.objects.get(pk=batch_id).closed_at is not None
    assert desk.plan(*dead[1:]).items == 3  # the others may be planned again


def test_one_batch_of_a_group_runs_at_a_time(desk: Desk) -> None:
    _, dead = dead_ones(desk, 2)
    first, second = desk.approved(dead[0]), desk.approved(dead[1])
    assert at_once([run_round] * 3) == [pytest.approx(0, abs=1)] * 3
    assert (batch_status(first), batch_status(second)) == ("CANARY", "APPROVED")
    work_off()
    assert (batch_status(first), batch_status(second)) == ("COMPLETED", "COMPLETED")


def test_a_batch_waits_for_its_ticket_to_be_ready(desk: Desk) -> None:
    sale, dead = dead_ones(desk, 1)
    batch_id = desk.approved(*dead)
    execute_as_owner("UPDATE dlq_ticket SET status = 'FIXING'")
    work_off(rounds=1)
    assert batch_status(batch_id) == BatchStatus.APPROVED
    assert counts(batch_id) == {"APPROVED": 1}
    execute_as_owner("UPDATE dlq_ticket SET status = 'READY'")
    work_off()
    assert batch_status(batch_id) == BatchStatus.COMPLETED
    desk.ticket.refresh_from_db()
    assert desk.ticket.status == "VERIFYING"
    assert sale.orders() == 1


def test_two_workers_send_each_item_once(desk: Desk) -> None:
    sale, dead = dead_ones(desk, 20)
    batch_id = desk.approved(*dead)
    work_off(rounds=2)
    for _ in range(4):
        a_second_later()
        at_once([run_round] * 3)
        consume(publish())
    work_off(rounds=2)

    assert batch_status(batch_id) == BatchStatus.COMPLETED
    assert sale.orders() == 20
    assert set(ReplayItem.objects.values_list("send_tries", flat=True)) == {1}


def test_a_poison_item_is_skipped(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    sale, dead = dead_ones(desk, 3)
    batch_id = desk.approved(*dead)
    poison = dead[0].message_id
    from dlq_admin.replay import send

    real = send._write

    def write(row, message, *, before):
        if message.message_id == poison:
            raise ValueError("cannot be written")
        real(row, message, before=before)

    monkeypatch.setattr(send, "_write", write)
    work_off()

    assert counts(batch_id) == {"STALE": 1, "VERIFIED": 2}
    assert sale.orders() == 2


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


def test_the_evidence_is_kept_whatever_becomes_of_the_replay(desk: Desk) -> None:
    """Case 33 of the public bugs: the copy is never deleted before the effect is proven."""
    sale, (dead,) = dead_ones(desk, 1)
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


def test_an_edit_keeps_what_was_bought_and_needs_two_people(desk: Desk) -> None:
    sale = open_sale(units=5)
    reservation = sale.reserve("ann")
    dead = desk.dead(sale, reservation)
    body = bytes(dead.body)
    wish = {"ticket_id": desk.ticket.pk, "message_pk": dead.pk, "user": desk.operator,
            "reason": "fix"}  # fmt: skip
    with pytest.raises(PlanRefused, match="locked: quantity"):
        replay.plan_edited(body=body.replace(b'"quantity":1', b'"quantity":2'), **wish)
    with pytest.raises(PlanRefused, match="SCHEMA_UNSUPPORTED"):
        replay.plan_edited(body=body.replace(b'"schema_version":1', b'"schema_version":9'), **wish)
    edited = body.replace(b'"producer":"seckill"', b'"producer":"repaired"')
    planned = replay.plan_edited(body=edited, **wish)
    replay.request_approval(batch_id=planned.batch_id, user=desk.operator)
    yes = {"batch_id": planned.batch_id, "plan_hash": planned.plan_hash, "password": PASSWORD}
    assert replay.approve(user=desk.lead, **yes) is BatchStatus.PENDING_APPROVAL
    with pytest.raises(ApprovalRefused, match="given already"):
        replay.approve(user=desk.lead, **yes)
    assert replay.approve(user=desk.approver, **yes) is BatchStatus.APPROVED
    work_off()

    assert item(dead).status == ItemStatus.VERIFIED
    assert item(dead).edit_diff == [{"path": "producer", "before": "seckill", "after": "repaired"}]
    assert sale.orders() == 1
    assert bytes(type(dead).objects.get(pk=dead.pk).body) == body  # the evidence is untouched


def test_every_service_checks_its_permission_before_anything_else(desk: Desk) -> None:
    _, dead = dead_ones(desk, 1)
    planned = desk.plan(dead[0])
    nobody = person("nobody", permissions.VIEW_CONSOLE)
    before = AuditEvent.objects.count()
    b = planned.batch_id
    for act in (
        lambda: replay.plan(ticket_id=desk.ticket.pk, message_pks=[dead[0].pk],
                            disposition=Disposition.REPLAY, user=nobody, reason="x"),
        lambda: replay.plan_all(ticket_id=desk.ticket.pk, disposition=Disposition.REPLAY,
                                user=nobody, reason="x"),
        lambda: replay.plan_edited(ticket_id=desk.ticket.pk, message_pk=dead[0].pk, body=b"{}",
                                   user=nobody, reason="x"),
        lambda: replay.request_approval(batch_id=b, user=nobody),
        lambda: replay.approve(batch_id=b, plan_hash="", password=PASSWORD, user=nobody),
        lambda: replay.reject(batch_id=b, user=nobody, reason="x"),
        lambda: replay.pause(batch_id=b, user=nobody, reason="x"),
        lambda: replay.resume(batch_id=b, user=nobody, reason="x"),
        lambda: replay.abort(batch_id=b, user=nobody, reason="x"),
        lambda: replay.set_rate(batch_id=b, user=nobody, rate=1),
        lambda: replay.check_now(ticket_id=desk.ticket.pk, user=nobody),
    ):  # fmt: skip
        with pytest.raises(PermissionDenied):
            act()
    assert AuditEvent.objects.count() == before
    assert batch_status(b) == BatchStatus.PLANNED


def test_approval_needs_the_password_the_same_plan_and_another_person(desk: Desk) -> None:
    _, dead = dead_ones(desk, 1)
    planned = desk.plan(dead[0])
    b, digest = planned.batch_id, planned.plan_hash
    with pytest.raises(StaleState):
        replay.approve(batch_id=b, plan_hash=digest, password=PASSWORD, user=desk.approver)
    with pytest.raises(ApprovalRefused, match="whoever planned it"):
        replay.request_approval(batch_id=b, user=person("otto", permissions.REQUEST_REPLAY))
    replay.request_approval(batch_id=b, user=desk.operator)
    with pytest.raises(ApprovalRefused, match="password"):
        replay.approve(batch_id=b, plan_hash=digest, password="wrong", user=desk.approver)
    with pytest.raises(ApprovalRefused, match="not the plan"):
        replay.approve(batch_id=b, plan_hash="f" * 64, password=PASSWORD, user=desk.approver)
    both = person("olga2", permissions.APPROVE_REPLAY)
    execute_as_owner("UPDATE dlq_admin_replay_batch SET requested_by_id = %s", both.pk)
    with pytest.raises(ApprovalRefused, match="another person"):
        replay.approve(batch_id=b, plan_hash=digest, password=PASSWORD, user=both)
    assert batch_status(b) == BatchStatus.PENDING_APPROVAL
    assert AuditEvent.objects.filter(kind="APPROVAL_PASSWORD_WRONG").count() == 1
    replay.reject(batch_id=b, user=desk.approver, reason="no")
    assert item(dead[0]).status == ItemStatus.REJECTED
    assert timezone.now() - item(dead[0]).ended_at < timedelta(minutes=1)

"""Batches: frozen selection, canary, rate, pause and abort that bite, brakes, one a group."""

import pytest
from django.core.exceptions import PermissionDenied

from dlq_admin import replay
from dlq_admin.models import InvariantRun, ReplayBatch, ReplayItem
from dlq_admin.replay import selectors
from dlq_admin.replay.limits import Pressure
from dlq_admin.replay.progress import progress
from dlq_admin.replay.refusals import PlanRefused
from dlq_admin.replay.worker import run_round
from dlq_admin.states import BatchStatus, Disposition, ItemStatus
from messaging import quarantine
from messaging.topology import CG_ORDER_CREATE
from tests.fixtures.dlq import (
    Desk,
    batch_status,
    consume,
    dead_ones,
    delivered,
    execute_as_owner,
    item,
    publish,
    work_off,
)
from tests.fixtures.sales import at_once

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]


def counts(batch_id: int) -> dict[str, int]:
    return dict(progress(batch_id).by_status)


def a_second_later() -> None:
    execute_as_owner(
        "UPDATE dlq_admin_replay_item SET sent_at = sent_at - interval '2 seconds'"
        " WHERE sent_at IS NOT NULL"
    )


def test_what_cannot_be_done_stays_in_the_plan_as_blocked_and_is_never_sent(desk: Desk) -> None:
    """Ann's bytes are not those that were captured: bob's order is made, her message stays."""
    sale, (ann, bob) = dead_ones(desk, 2)
    execute_as_owner("UPDATE dlq_message SET body_sha256 = %s WHERE id = %s", "0" * 64, ann.pk)
    planned = desk.plan(ann, bob)
    assert (planned.items, planned.excluded) == (1, {"BLOCKED: HASH_MISMATCH": 1})
    desk.approve(planned)
    work_off()

    assert counts(planned.batch_id) == {ItemStatus.VERIFIED: 1, ItemStatus.BLOCKED: 1}
    blocked = item(ann)
    assert (blocked.verdict_reason, blocked.send_tries) == ("HASH_MISMATCH", 0)
    assert blocked.ended_at is not None
    assert batch_status(planned.batch_id) == BatchStatus.COMPLETED
    assert (sale.orders(), type(ann).objects.get(pk=ann.pk).status) == (1, "OPEN")


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


def test_a_paused_batch_is_not_closed_nor_looked_at_again_and_again(desk: Desk) -> None:
    _, dead = dead_ones(desk, 1)
    batch_id = desk.approved(*dead)
    run_round()
    replay.pause(batch_id=batch_id, user=desk.operator, reason="look first")
    consume(publish())
    run_round()
    assert counts(batch_id) == {"VERIFIED": 1}  # nothing is left to do, and a person decides
    looks = InvariantRun.objects.filter(batch_id=batch_id).count()
    run_round()
    run_round()
    assert InvariantRun.objects.filter(batch_id=batch_id).count() == looks
    assert batch_status(batch_id) == BatchStatus.PAUSED

    replay.resume(batch_id=batch_id, user=desk.lead, reason="looked")
    run_round()
    assert batch_status(batch_id) == BatchStatus.COMPLETED
    assert ReplayBatch.objects.get(pk=batch_id).closed_at is not None


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

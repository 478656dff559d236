"""What else people may decide: an extension, a compensation, a discard; and what nobody may."""

import pytest

from dlq_admin import dry_run, replay
from dlq_admin.models import AuditEvent
from dlq_admin.replay import consent
from dlq_admin.replay.refusals import ApprovalRefused, PlanRefused
from dlq_admin.replay.worker import run_round
from dlq_admin.states import BatchStatus, Disposition, ItemStatus
from tests.fixtures.dlq import (
    PASSWORD,
    Desk,
    Lost,
    batch_status,
    execute_as_owner,
    item,
    one_order,
    work_off,
)
from tests.fixtures.sales import open_sale, wait_past

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]


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
    assert consent.missing(planned.batch_id) == "no incident lead's approval"
    done = replay.approve(
        batch_id=planned.batch_id, plan_hash=planned.plan_hash, password=PASSWORD, user=desk.lead
    )
    assert done is BatchStatus.APPROVED
    work_off()

    assert item(dead).status == ItemStatus.VERIFIED
    assert one_order(sale)
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


def test_compensate_rejects_and_gives_back_in_one_transaction(desk: Desk, lost: Lost) -> None:
    sale, reservation, dead = lost
    batch_id = desk.approved(dead, disposition=Disposition.COMPENSATE)
    run_round()
    run_round()

    assert item(dead).status == ItemStatus.COMPENSATED
    assert batch_status(batch_id) == BatchStatus.COMPLETED
    assert sale.outcome(reservation)[:2] == ("REJECTED", "COMPENSATED")
    assert (sale.gate_stock(), sale.orders()) == (10, 0)
    assert sale.quarantine_row(reservation)[0] == "RESOLVED"
    assert (type(dead).objects.get(pk=dead.pk).resolution) == "COMPENSATED"


def test_discard_is_refused_while_its_reservation_is_held(desk: Desk, lost: Lost) -> None:
    sale, reservation, dead = lost
    with pytest.raises(PlanRefused, match="STILL_HELD"):
        desk.plan(dead, disposition=Disposition.DISCARD)
    sale.deliver(reservation)
    sale.hold(reservation)  # dies once more, with its order made

    desk.approved(dead, disposition=Disposition.DISCARD)
    run_round()

    assert item(dead).status == ItemStatus.DISCARDED
    assert sale.orders() == 1
    assert sale.quarantine_row(reservation)[0] == "RESOLVED"


def test_inbox_created_without_order_is_a_breach_and_is_never_replayed(
    desk: Desk, lost: Lost
) -> None:
    sale, reservation, dead = lost
    sale.deliver(reservation)
    execute_as_owner("DELETE FROM orders_order")
    seen = dry_run.dry_run(message_pk=dead.pk, disposition=Disposition.REPLAY, user=desk.operator)
    assert (seen.verdict, seen.reason) == ("BREACH", "INBOX_CREATED_WITHOUT_ORDER")
    with pytest.raises(PlanRefused, match="BREACH"):
        desk.plan(dead)

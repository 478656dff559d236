"""Broken glass: it starts at once, and two people stand for it all the same, within the hour."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.core.exceptions import PermissionDenied
from django.db import transaction

from dlq_admin import permissions, replay, tickets
from dlq_admin.audit.verify import verify
from dlq_admin.errors import GuardRefused
from dlq_admin.models import (
    Approval,
    AuditEvent,
    BreakGlass,
    FailureGroup,
    ReplayBatch,
    SlaClock,
    Ticket,
)
from dlq_admin.replay.refusals import ApprovalRefused, PlanRefused, StaleState
from dlq_admin.states import BatchStatus, Disposition, ItemStatus
from dlq_admin.tasks import keep_promises
from dlq_admin.tickets.close import close_if_settled
from dlq_admin.tickets.notices import announce_broken_glass
from tests.fixtures.dlq import (
    LEAD,
    OPERATOR,
    PASSWORD,
    Desk,
    Lost,
    batch_status,
    execute_as_owner,
    item,
    one_order,
    person,
    ready_ticket,
    refused,
    work_off,
)
from tests.fixtures.sales import open_sale, wait_past

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]

BREAKER = (*LEAD, permissions.BREAK_GLASS, permissions.CLOSE_TICKET)


@pytest.fixture
def breaker(desk: Desk) -> User:
    """An incident lead who may break the glass."""
    return person("bea", *BREAKER)


def waiting(desk: Desk, *dead: Any, **more: Any) -> replay.PlanResult:
    """Plan, and ask for approval."""
    planned = desk.plan(*dead, **more)
    replay.request_approval(batch_id=planned.batch_id, user=desk.operator)
    return planned


def broken(planned: replay.PlanResult, user: User, **changes: Any) -> None:
    replay.break_glass(
        **{"batch_id": planned.batch_id, "plan_hash": planned.plan_hash, "password": PASSWORD,
           "reason": "the sale ends in a minute", "user": user, **changes}
    )  # fmt: skip


def approved(planned: replay.PlanResult, user: User) -> BatchStatus:
    return replay.approve(
        batch_id=planned.batch_id, plan_hash=planned.plan_hash, password=PASSWORD, user=user
    )


def an_hour_passes() -> None:
    execute_as_owner(
        "UPDATE dlq_admin_break_glass SET broken_at = broken_at - interval '61 minutes',"
        " due_at = due_at - interval '61 minutes'"
    )
    execute_as_owner(
        "UPDATE dlq_sla_clock SET started_at = started_at - interval '61 minutes', remind_at ="
        " remind_at - interval '61 minutes', due_at = due_at - interval '61 minutes'"
        " WHERE kind = 'GLASS'"
    )


def test_it_runs_at_once_and_the_ticket_ends_only_when_another_person_approved(
    desk: Desk, lost: Lost, breaker: User
) -> None:
    sale, _, dead = lost
    planned = waiting(desk, dead)

    broken(planned, breaker)
    work_off()

    assert item(dead).status == ItemStatus.VERIFIED
    assert one_order(sale)
    assert Ticket.objects.get().status == "VERIFYING"
    owed = f"batch {planned.batch_id} was started behind broken glass"
    assert owed in tickets.why_not_close(ticket_id=desk.ticket.pk)
    with pytest.raises(GuardRefused, match=owed):
        tickets.close(ticket_id=desk.ticket.pk, user=breaker)
    with pytest.raises(ApprovalRefused, match="you broke the glass"):
        approved(planned, breaker)
    with pytest.raises(PermissionDenied):
        approved(planned, desk.operator)
    assert BreakGlass.objects.get().approved_at is None

    assert approved(planned, desk.approver) is BatchStatus.COMPLETED

    assert BreakGlass.objects.get().approved_at is not None
    assert SlaClock.objects.get(kind="GLASS").stopped_at is not None
    tickets.close(ticket_id=desk.ticket.pk, user=breaker)
    assert Ticket.objects.get().status == "CLOSED"
    told = dict(AuditEvent.objects.filter(kind__startswith="GLASS").values_list("kind", "actor"))
    assert told == {"GLASS_BROKEN": "bea", "GLASS_APPROVED": "anna"}
    assert "the sale ends in a minute" in AuditEvent.objects.get(kind="GLASS_BROKEN").detail
    assert verify(ticket_id=desk.ticket.pk).ok


def test_who_may_not_and_what_may_not(desk: Desk, lost: Lost, breaker: User) -> None:
    planned = desk.plan(lost.dead)
    with pytest.raises(StaleState):  # nobody has asked for its approval
        broken(planned, breaker)
    replay.request_approval(batch_id=planned.batch_id, user=desk.operator)
    before = AuditEvent.objects.count()
    for user in (desk.operator, desk.approver, desk.lead):
        with pytest.raises(PermissionDenied):
            broken(planned, user)
    with pytest.raises(PermissionDenied):  # glass alone is no incident lead
        broken(planned, person("gil", permissions.BREAK_GLASS))
    with pytest.raises(ApprovalRefused, match="a reason is needed"):
        broken(planned, breaker, reason="  ")
    with pytest.raises(ApprovalRefused, match="not the plan"):
        broken(planned, breaker, plan_hash="f" * 64)
    assert AuditEvent.objects.count() == before
    with pytest.raises(ApprovalRefused, match="password"):
        broken(planned, breaker, password="wrong")

    assert AuditEvent.objects.filter(kind="APPROVAL_PASSWORD_WRONG").count() == 1
    assert batch_status(planned.batch_id) == BatchStatus.PENDING_APPROVAL
    assert BreakGlass.objects.count() == 0
    broken(planned, breaker)
    with pytest.raises(StaleState):
        broken(planned, breaker)


def test_a_discard_is_never_done_like_this(desk: Desk, lost: Lost, breaker: User) -> None:
    sale, reservation, dead = lost
    sale.deliver(reservation)
    planned = waiting(desk, dead, disposition=Disposition.DISCARD)
    with pytest.raises(ApprovalRefused, match="for good"):
        broken(planned, breaker)
    assert batch_status(planned.batch_id) == BatchStatus.PENDING_APPROVAL


def test_whoever_planned_it_may_break_it_and_two_others_are_needed_for_an_edit(
    desk: Desk, lost: Lost
) -> None:
    """Alone at night: planned, edited and started by one; approved by two, one of them a lead."""
    alone = person("ada", *OPERATOR, *BREAKER)
    body = bytes(lost.dead.body).replace(b'"producer":"seckill"', b'"producer":"repaired"')
    planned = replay.plan_edited(
        ticket_id=desk.ticket.pk, message_pk=lost.dead.pk, body=body, user=alone, reason="fix"
    )
    replay.request_approval(batch_id=planned.batch_id, user=alone)
    broken(planned, alone)
    work_off()
    assert one_order(lost.sale)

    with pytest.raises(ApprovalRefused, match="you broke the glass"):
        approved(planned, alone)
    approved(planned, desk.approver)
    assert BreakGlass.objects.get().approved_at is None
    approved(planned, desk.lead)
    assert BreakGlass.objects.get().approved_at is not None


def test_after_the_hour_it_is_told_and_an_incident_lead_must_approve(
    desk: Desk, lost: Lost, breaker: User, settings: Any
) -> None:
    settings.SECKILL_MAIL, settings.SECKILL_ONCALL_MAIL = True, ["oncall@example.com"]
    planned = waiting(desk, lost.dead)
    broken(planned, breaker)
    assert announce_broken_glass(planned.batch_id)
    assert mail.outbox[0].to == ["oncall@example.com"]
    assert f"bea broke the glass of batch {planned.batch_id}" in mail.outbox[0].subject
    # A ticket that waits does not make the hour longer.
    execute_as_owner(
        "UPDATE dlq_ticket SET status = 'WAITING', waiting_from = 'READY', waiting_until = now()"
        " + interval '1 hour'"
    )
    an_hour_passes()
    keep_promises()
    assert "started behind broken glass is broken" in mail.outbox[-1].subject
    assert AuditEvent.objects.filter(kind="SLA_BREACHED", detail__contains="GLASS").count() == 1

    with pytest.raises(ApprovalRefused, match="its hour has passed"):
        approved(planned, desk.approver)
    approved(planned, desk.lead)
    assert '"late":true' in AuditEvent.objects.get(kind="GLASS_APPROVED").detail.replace(" ", "")


def test_the_ticket_cannot_end_in_another_way(desk: Desk, lost: Lost, breaker: User) -> None:
    planned = waiting(desk, lost.dead)
    broken(planned, breaker)
    replay.abort(batch_id=planned.batch_id, user=desk.lead, reason="no")
    triage = person("tim", permissions.TRIAGE_TICKET, permissions.DISCARD_MESSAGE)
    group = FailureGroup.objects.create(
        consumer_group=desk.ticket.failure_group.consumer_group, error_class="X",
        fingerprint="e" * 32,
    )  # fmt: skip
    into = ready_ticket(group, assignee=desk.operator)
    with pytest.raises(GuardRefused, match="broken glass"):
        tickets.merge(ticket_id=desk.ticket.pk, into_id=into.pk, reason="same", user=triage)
    lost.sale.deliver(lost.reservation)
    execute_as_owner(
        "UPDATE dlq_ticket SET status = 'CLASSIFIED', disposition = 'DISCARD' WHERE id = %s",
        desk.ticket.pk,
    )
    with pytest.raises(GuardRefused, match="broken glass"):
        tickets.request_discard(ticket_id=desk.ticket.pk, reason="no", user=triage)
    execute_as_owner(
        "UPDATE dlq_message SET status = 'CLOSED', resolution = 'SETTLED', closed_at = now()"
    )
    with transaction.atomic():
        assert not close_if_settled(desk.ticket.pk)
    approved(planned, desk.approver)
    with transaction.atomic():
        assert close_if_settled(desk.ticket.pk)


def test_an_extension_needs_the_override_permission(desk: Desk) -> None:
    sale = open_sale(units=10, validity_ms=1)
    reservation = sale.reserve("ann")
    dead = desk.dead(sale, reservation)
    wait_past(reservation)
    with pytest.raises(PlanRefused):
        desk.plan(dead)
    planned = waiting(desk, dead, extension_s=600)
    second = person("sue", *(set(LEAD) - {permissions.OVERRIDE_REPLAY}))
    assert approved(planned, second) is BatchStatus.PENDING_APPROVAL
    with pytest.raises(PermissionDenied, match="override_replay"):
        broken(planned, person("pat", permissions.BREAK_GLASS, permissions.APPROVE_SECOND_LEVEL))
    assert not Approval.objects.get().lead
    assert approved(planned, desk.lead) is BatchStatus.APPROVED


def test_postgresql_itself_holds_it(desk: Desk, lost: Lost, breaker: User) -> None:
    planned = waiting(desk, lost.dead)
    insert = (
        "INSERT INTO dlq_admin_break_glass (batch_id, user_id, plan_hash, reason)"
        " VALUES (%s, %s, %s, %s)"
    )
    refused(insert, planned.batch_id, breaker.pk, "f" * 64, "x", match="cannot be broken")
    refused(insert, planned.batch_id, breaker.pk, planned.plan_hash, "", match="reason_ck")
    broken(planned, breaker)
    refused(insert, planned.batch_id, breaker.pk, planned.plan_hash, "x", match="cannot be broken")
    give = (
        "INSERT INTO dlq_admin_approval"
        " (batch_id, requested_by_id, edited_by_id, plan_hash, approver_id, lead, comment)"
        " SELECT id, requested_by_id, edited_by_id, plan_hash, %s, %s, ''"
        " FROM dlq_admin_replay_batch"
    )
    refused(give, breaker.pk, True, match="whoever broke the glass")
    refused(give, desk.operator.pk, True, match="not_own_ck")
    for change in (
        "reason = 'another'", "due_at = now() + interval '1 day'", "user_id = user_id + 1",
    ):  # fmt: skip
        refused(f"UPDATE dlq_admin_break_glass SET {change}", match="stays broken")  # noqa: S608
    refused("UPDATE dlq_admin_break_glass SET approved_at = now()", match="0 of 1 approvals")
    refused("DELETE FROM dlq_admin_break_glass", match="append-only")
    refused("TRUNCATE dlq_admin_break_glass", match="append-only")
    an_hour_passes()
    refused(give, desk.approver.pk, False, match="the hour of batch")
    assert ReplayBatch.objects.get().status == "APPROVED"

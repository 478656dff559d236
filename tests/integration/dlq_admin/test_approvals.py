"""Who may do what to a plan: permissions, passwords, two people, and edits."""

from datetime import timedelta

import pytest
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from dlq_admin import permissions, replay
from dlq_admin.models import AuditEvent
from dlq_admin.replay.refusals import ApprovalRefused, PlanRefused, StaleState
from dlq_admin.states import BatchStatus, Disposition, ItemStatus
from tests.fixtures.dlq import (
    PASSWORD,
    Desk,
    Lost,
    batch_status,
    execute_as_owner,
    item,
    person,
    work_off,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]


def test_an_edit_keeps_what_was_bought_and_needs_two_people(desk: Desk, lost: Lost) -> None:
    sale, _, dead = lost
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


def test_every_service_checks_its_permission_before_anything_else(desk: Desk, lost: Lost) -> None:
    dead = lost.dead
    planned = desk.plan(dead)
    nobody = person("nobody", permissions.VIEW_CONSOLE)
    before = AuditEvent.objects.count()
    b = planned.batch_id
    for act in (
        lambda: replay.plan(ticket_id=desk.ticket.pk, message_pks=[dead.pk],
                            disposition=Disposition.REPLAY, user=nobody, reason="x"),
        lambda: replay.plan_all(ticket_id=desk.ticket.pk, disposition=Disposition.REPLAY,
                                user=nobody, reason="x"),
        lambda: replay.plan_edited(ticket_id=desk.ticket.pk, message_pk=dead.pk, body=b"{}",
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


def test_approval_needs_the_password_the_same_plan_and_another_person(
    desk: Desk, lost: Lost
) -> None:
    dead = lost.dead
    planned = desk.plan(dead)
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
    execute_as_owner(
        "UPDATE dlq_admin_replay_batch SET requested_by_id = %s, edited_by_id = %s",
        desk.operator.pk,
        both.pk,
    )
    with pytest.raises(ApprovalRefused, match="another person"):
        replay.approve(batch_id=b, plan_hash=digest, password=PASSWORD, user=both)
    assert batch_status(b) == BatchStatus.PENDING_APPROVAL
    assert AuditEvent.objects.filter(kind="APPROVAL_PASSWORD_WRONG").count() == 1
    replay.reject(batch_id=b, user=desk.approver, reason="no")
    assert item(dead).status == ItemStatus.REJECTED
    assert timezone.now() - item(dead).ended_at < timedelta(minutes=1)

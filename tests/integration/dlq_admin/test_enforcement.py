"""PostgreSQL itself refuses: with the services out of the way, and as the role of the processes."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction

from dlq_admin import replay
from dlq_admin.audit import record
from dlq_admin.audit.anchor import write_anchor
from dlq_admin.audit.verify import verify
from dlq_admin.models import Approval, ReplayBatch, ReplayItem
from dlq_admin.permissions import ROLES, codename
from dlq_admin.replay.worker import run_round
from dlq_admin.states import BATCH_ALLOWED, ITEM_ALLOWED, ItemStatus
from tests.fixtures import desk as desk_fixtures
from tests.fixtures.dlq import Desk, execute_as_owner, item, refused, work_off
from tests.fixtures.sales import open_sale
from tests.fixtures.sql import rows

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]

RUNTIME, AUDITOR = "seckill_test_runtime", "seckill_test_auditor"


@pytest.fixture
def roles(transactional_db: None) -> None:
    """The two roles, without a password: tests step into them with SET ROLE."""
    with connection.cursor() as cursor:
        for role in (RUNTIME, AUDITOR):
            cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role])
            if cursor.fetchone() is None:
                cursor.execute(f'CREATE ROLE "{role}" NOLOGIN')
    call_command("grant_roles", "--runtime", RUNTIME, "--auditor", AUDITOR, stdout=StringIO())


@contextmanager
def as_role(role: str) -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(f'SET ROLE "{role}"')
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("RESET ROLE")


def test_a_named_role_that_does_not_exist_is_an_error(roles: None) -> None:
    out = StringIO()
    with pytest.raises(CommandError, match="there is no role seckill_tpyo"):
        call_command("grant_roles", "--runtime", "seckill_tpyo", stdout=out)
    assert "runtime: seckill_tpyo absent" in out.getvalue()
    with pytest.raises(CommandError, match="no name of a role"):
        call_command("grant_roles", "--runtime", "A typo", stdout=out)


def pending(desk: Desk, **more: Any) -> ReplayBatch:
    sale = open_sale(units=50)
    dead = [desk.dead(sale, one) for one in sale.reserve_all(["ann", "bob"])]
    planned = desk.plan(*dead, **more)
    replay.request_approval(batch_id=planned.batch_id, user=desk.operator)
    return ReplayBatch.objects.get(pk=planned.batch_id)


def approve_by_sql(batch: ReplayBatch, approver: User, **changes: Any) -> None:
    values = {
        "batch_id": batch.pk,
        "requested_by_id": batch.requested_by_id,
        "edited_by_id": batch.edited_by_id,
        "plan_hash": batch.plan_hash,
        "approver_id": approver.pk,
        "lead": True,
        "comment": "",
    } | changes
    names = ", ".join(values)
    marks = ", ".join(["%s"] * len(values))
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO dlq_admin_approval ({names}) VALUES ({marks})",  # noqa: S608
            list(values.values()),
        )


def test_self_approval_is_refused(desk: Desk) -> None:
    batch = pending(desk)
    with pytest.raises(IntegrityError, match="dlq_admin_approval_not_own_ck"):
        approve_by_sql(batch, desk.operator)
    with pytest.raises(IntegrityError, match="dlq_admin_approval_plan_fk"):
        approve_by_sql(
            batch, desk.operator, requested_by_id=desk.lead.pk, edited_by_id=desk.lead.pk
        )
    assert Approval.objects.count() == 0


def test_the_editor_cannot_approve(desk: Desk) -> None:
    batch = pending(desk)
    with pytest.raises(IntegrityError, match="dlq_admin_approval_plan_fk"):
        approve_by_sql(batch, desk.approver, edited_by_id=desk.lead.pk)
    with pytest.raises(IntegrityError, match="dlq_admin_approval_not_own_ck"):
        approve_by_sql(batch, desk.approver, edited_by_id=desk.approver.pk)


def test_an_approval_of_another_plan_is_refused(desk: Desk) -> None:
    batch = pending(desk)
    with pytest.raises(IntegrityError, match="dlq_admin_approval_plan_fk"):
        approve_by_sql(batch, desk.approver, plan_hash="0" * 64)


def test_one_person_approves_once(desk: Desk) -> None:
    batch = pending(desk)
    approve_by_sql(batch, desk.approver)
    with pytest.raises(IntegrityError, match="dlq_admin_approval_approver_uniq"):
        approve_by_sql(batch, desk.approver)


def test_an_approval_after_its_time_is_refused(desk: Desk) -> None:
    batch = pending(desk)
    execute_as_owner("UPDATE dlq_admin_replay_batch SET expires_at = now()")
    with pytest.raises(IntegrityError, match="does not wait for approval"):
        approve_by_sql(batch, desk.approver)


def test_a_batch_is_approved_by_enough_people_only(desk: Desk) -> None:
    batch = pending(desk)
    jump = "UPDATE dlq_admin_replay_batch SET status = 'APPROVED' WHERE id = %s"
    refused(jump, batch.pk, match="has 0 of 1 approvals")
    approve_by_sql(batch, desk.approver, lead=False)
    with connection.cursor() as cursor:
        cursor.execute(jump, [batch.pk])
        assert cursor.rowcount == 1


def test_the_second_level_is_counted_from_the_items(desk: Desk) -> None:
    def needed(batch_id: int, extension_s: int = 0) -> tuple[int, bool]:
        ((people, lead),) = rows(
            "SELECT * FROM dlq_admin_approvals_needed(%s, %s)", batch_id, extension_s
        )
        return people, lead

    sale = open_sale(units=50)
    dead = [desk.dead(sale, r) for r in sale.reserve_all([f"u{n}" for n in range(23)])]
    few, many = desk.plan(*dead[:2]).batch_id, desk.plan(*dead[2:]).batch_id

    assert needed(few) == (1, False)
    assert needed(few, extension_s=60) == (1, True)
    assert needed(many) == (2, True)
    execute_as_owner("UPDATE dlq_admin_replay_item SET replay_count = 3 WHERE batch_id = %s", few)
    assert needed(few) == (1, True)
    execute_as_owner(
        "UPDATE dlq_admin_replay_item SET edit_diff = '[]', body = '{}' WHERE batch_id = %s", few
    )
    assert needed(few) == (2, True)


def test_a_plan_is_frozen(desk: Desk) -> None:
    pending(desk)
    for change in (
        "plan_hash = 'f'", "rate_cap = 1000", "extension_s = 600", "items_total = 1",
        "disposition = 'DISCARD'", "consumer_group = 'OTHER'", "expires_at = now() + '1 day'",
        "selection = '{}'", "reason = 'another'", "canary_size = 5",
        "edited_by_id = edited_by_id + 1", "requested_by_id = requested_by_id + 1",
    ):  # fmt: skip
        refused(f"UPDATE dlq_admin_replay_batch SET {change}", match="is frozen")  # noqa: S608
    for change in (
        "verdict = 'NOOP'", "item_hash = 'f'", "body = '\\x00', edit_diff = '[]'",
        "payload_sha256 = 'f'", "replay_count = 1 + replay_count", "position = 9 + position",
        "message_id = message_id + 1",
    ):  # fmt: skip
        refused(f"UPDATE dlq_admin_replay_item SET {change}", match="is frozen")  # noqa: S608


def test_nothing_joins_a_planned_batch(desk: Desk) -> None:
    batch = pending(desk)
    sale = open_sale(units=5)
    late = desk.dead(sale, sale.reserve("late"))
    with pytest.raises(IntegrityError, match="is frozen"), transaction.atomic():
        ReplayItem.objects.create(
            batch=batch, position=9, message=late, replay_id="rpl_x", verdict="WILL_CREATE",
            verdict_reason="", item_hash="", payload_sha256="", replay_count=1,
        )  # fmt: skip
    with pytest.raises(IntegrityError, match="begins as a draft"), transaction.atomic():
        ReplayBatch.objects.create(
            ticket=desk.ticket, consumer_group="G", disposition="REPLAY", status="APPROVED",
            rate_cap=1, live_rate=1, requested_by=desk.operator, edited_by=desk.operator,
            idempotency_key="k", expires_at=batch.expires_at,
        )  # fmt: skip


def test_the_jump_table_is_the_code_s(transactional_db: None) -> None:
    wanted = {
        (entity, before.value, after.value)
        for entity, allowed in (("batch", BATCH_ALLOWED), ("item", ITEM_ALLOWED))
        for before, following in allowed.items()
        for after in following
    }
    found = rows("SELECT entity, from_status, to_status FROM dlq_admin_transition")
    assert set(found) == wanted


def test_the_roles_are_the_code_s(transactional_db: None) -> None:
    desk_fixtures.person("viewer")  # has the migration make the roles should they be gone
    wanted = {name: {codename(p) for p in granted} for name, granted in ROLES.items()}
    found = {
        group.name: set(group.permissions.values_list("codename", flat=True))
        for group in Group.objects.filter(name__in=ROLES)
    }
    assert found == wanted


def test_an_item_makes_legal_jumps_only(desk: Desk) -> None:
    pending(desk)
    legal = ITEM_ALLOWED[ItemStatus.PENDING_APPROVAL] - {ItemStatus.APPROVED}
    for status in set(ItemStatus) - legal - {ItemStatus.PENDING_APPROVAL}:
        refused(
            "UPDATE dlq_admin_replay_item SET status = %s",
            status.value,
            match="cannot go|approved with its batch only",
        )


def test_the_runtime_role_works_and_cannot_touch_the_record(desk: Desk, roles: None) -> None:
    batch = pending(desk)
    write_anchor()
    with as_role(RUNTIME):
        record(ticket_id=1, kind="NOTED", actor="system", detail={})
        replay.approve(
            batch_id=batch.pk, plan_hash=batch.plan_hash, password="correct horse battery",
            user=desk.approver,
        )  # fmt: skip
        work_off(rounds=2)
        run_round()
        for sql in (
            "UPDATE dlq_admin_audit_event SET actor = 'x'",
            "DELETE FROM dlq_admin_audit_event",
            "TRUNCATE dlq_admin_audit_event",
            "UPDATE dlq_admin_audit_head SET seq = 0",
            "INSERT INTO dlq_admin_audit_head VALUES (99, 1, 'x')",
            "DELETE FROM dlq_admin_audit_head",
            "UPDATE dlq_admin_audit_anchor SET heads = '{}'",
            "DELETE FROM dlq_admin_audit_anchor",
            "TRUNCATE dlq_admin_audit_anchor",
            "UPDATE dlq_admin_approval SET lead = true",
            "DELETE FROM dlq_admin_approval",
            "TRUNCATE dlq_admin_approval",
            "DELETE FROM dlq_admin_replay_batch",
            "DELETE FROM dlq_admin_replay_item",
            "INSERT INTO dlq_admin_transition VALUES ('batch', 'DRAFT', 'APPROVED')",
            "DELETE FROM dlq_admin_transition",
            "UPDATE messaging_event_archive SET body = ''",
        ):
            refused(sql, match="permission denied")
        for sql in (
            "ALTER TABLE dlq_admin_audit_event DISABLE TRIGGER ALL",
            "DROP TRIGGER dlq_admin_audit_event_append_only ON dlq_admin_audit_event",
            "ALTER TABLE dlq_admin_approval DROP CONSTRAINT dlq_admin_approval_not_own_ck",
            "CREATE OR REPLACE FUNCTION dlq_admin_append_only() RETURNS trigger LANGUAGE plpgsql"
            " AS 'BEGIN RETURN NULL; END'",
        ):
            refused(sql, match="must be owner|permission denied")
        refused("SET session_replication_role = replica", match="permission denied")

    assert verify().ok
    assert {one.status for one in ReplayItem.objects.filter(batch=batch)} == {ItemStatus.VERIFIED}


def test_the_auditor_role_reads_and_verifies_and_changes_nothing(desk: Desk, roles: None) -> None:
    sale = open_sale(units=5)
    dead = desk.dead(sale, sale.reserve("ann"))
    desk.plan(dead)
    with as_role(AUDITOR):
        assert verify().ok
        assert item(dead).status == ItemStatus.PLANNED
        for sql in (
            "INSERT INTO dlq_admin_audit_event (chain, seq, kind, actor, detail, prev_hash, hash)"
            " VALUES (1, 0, 'NOTED', 'x', '{}', '', '')",
            "DELETE FROM dlq_admin_audit_event",
            "UPDATE dlq_admin_replay_batch SET status = 'APPROVED'",
            "UPDATE orders_order SET status = 'PAID'",
        ):
            refused(sql, match="permission denied")

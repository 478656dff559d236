"""The fresh password of an approval cannot be guessed: five wrong ones, then none for a while."""

from collections.abc import Callable

import pytest
import structlog
from django.contrib.auth.models import User

from dlq_admin import permissions, replay
from dlq_admin.models import AuditEvent, BreakGlass
from dlq_admin.replay.refusals import ApprovalRefused
from dlq_admin.states import BatchStatus
from tests.fixtures.dlq import (
    LEAD,
    PASSWORD,
    Desk,
    Lost,
    batch_status,
    execute_as_owner,
    person,
)
from tests.fixtures.sales import at_once

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]


@pytest.fixture
def planned(desk: Desk, lost: Lost) -> replay.PlanResult:
    """A plan that waits for approval."""
    found = desk.plan(lost.dead)
    replay.request_approval(batch_id=found.batch_id, user=desk.operator)
    return found


def approve(planned: replay.PlanResult, user: User, password: str) -> None:
    replay.approve(
        batch_id=planned.batch_id, plan_hash=planned.plan_hash, password=password, user=user
    )


def break_glass(planned: replay.PlanResult, user: User, password: str) -> None:
    replay.break_glass(
        batch_id=planned.batch_id, plan_hash=planned.plan_hash, password=password, user=user,
        reason="it cannot wait",
    )  # fmt: skip


def wrong() -> int:
    return AuditEvent.objects.filter(kind="APPROVAL_PASSWORD_WRONG").count()


def minutes_pass(minutes: int) -> None:
    execute_as_owner("UPDATE dlq_admin_audit_event SET at = at - %s * interval '1 minute'", minutes)


@pytest.mark.parametrize("act", [approve, break_glass])
def test_after_five_wrong_passwords_not_even_the_right_one_is_looked_at(
    planned: replay.PlanResult, act: Callable[..., None]
) -> None:
    guesser = person("gus", *LEAD, permissions.BREAK_GLASS)
    with structlog.testing.capture_logs() as lines:
        for n in range(5):
            assert not lines
            with pytest.raises(ApprovalRefused, match="the password is wrong"):
                act(planned, guesser, f"guess {n}")
        for password in (PASSWORD, "guess 6", PASSWORD):
            with pytest.raises(ApprovalRefused, match=r"5 wrong.*within 15.*try again in 15 min"):
                act(planned, guesser, password)

    assert wrong() == 5  # a guess that was not looked at makes the wait no longer
    (line,) = lines
    assert (line["alert"], line["user"]) == ("APPROVAL_PASSWORD", "gus")
    assert batch_status(planned.batch_id) == BatchStatus.PENDING_APPROVAL
    assert not BreakGlass.objects.exists()

    minutes_pass(14)
    with pytest.raises(ApprovalRefused, match=r"try again in 1 minute$"):
        act(planned, guesser, PASSWORD)
    minutes_pass(1)
    act(planned, guesser, PASSWORD)
    assert batch_status(planned.batch_id) == BatchStatus.APPROVED


def test_nobody_waits_for_what_another_guessed(desk: Desk, planned: replay.PlanResult) -> None:
    for n in range(5):
        with pytest.raises(ApprovalRefused, match="the password is wrong"):
            approve(planned, desk.approver, f"guess {n}")
    approve(planned, desk.lead, PASSWORD)
    assert batch_status(planned.batch_id) == BatchStatus.APPROVED


def test_guesses_that_are_sent_together_are_counted_one_after_the_other(
    desk: Desk, planned: replay.PlanResult
) -> None:
    def guess() -> str:
        with pytest.raises(ApprovalRefused) as refused:
            approve(planned, desk.approver, "guess")
        return str(refused.value)

    said = at_once([guess] * 12)

    assert said.count("the password is wrong") == 5
    assert wrong() == 5

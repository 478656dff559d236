"""`manage.py replay`: the desk's plan from the command line; a person still approves it."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from dlq_admin.models import ReplayBatch
from dlq_admin.states import BatchStatus
from tests.fixtures.dlq import Desk, batch_status, dead_ones, person

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]


def command(desk: Desk, *options: str, user: str = "") -> str:
    out = StringIO()
    name = user or desk.operator.get_username()
    call_command("replay", str(desk.ticket.pk), "--user", name, *options, stdout=out)
    return out.getvalue()


def test_a_dry_run_says_what_each_comes_to_and_writes_nothing(desk: Desk) -> None:
    dead_ones(desk, 3)

    said = command(desk, "--dry-run")

    assert "3  WILL_CREATE" in said
    assert "3 open messages looked at; nothing was written" in said
    assert not ReplayBatch.objects.exists()


def test_a_dry_run_leaves_out_what_a_plan_leaves_out(desk: Desk) -> None:
    _, (ann, *_) = dead_ones(desk, 3)
    command(desk, "--reason", "fixed", "--message", str(ann.pk))

    said = command(desk, "--dry-run")

    assert "2  WILL_CREATE" in said
    assert "left out: 1 IN_ANOTHER_BATCH" in said
    assert "2 open messages looked at" in said


def test_a_dry_run_of_an_unknown_ticket_is_an_error(desk: Desk) -> None:
    with pytest.raises(CommandError, match="there is no ticket 999999"):
        call_command("replay", "999999", "--user", desk.operator.get_username(), "--dry-run")


def test_what_it_plans_waits_for_another_person(desk: Desk) -> None:
    sale, (ann, *_) = dead_ones(desk, 3)
    said = command(desk, "--reason", "fixed", "--message", str(ann.pk))
    batch = ReplayBatch.objects.get()
    assert f"batch {batch.pk}: 1 of 1 messages" in said
    assert batch_status(batch.pk) == BatchStatus.PENDING_APPROVAL
    assert sale.orders() == 0


def test_refusals_are_one_line(desk: Desk) -> None:
    dead_ones(desk, 1)
    person("vera")
    for options, user, line in [
        (["--reason", "x"], "nobody", "there is no active user 'nobody'"),
        (["--reason", "x"], "vera", "vera lacks the permission dlq_admin.plan_replay"),
        (["--dry-run"], "vera", "vera lacks the permission dlq_admin.plan_replay"),
        ([], "", "a reason is needed"),
    ]:
        with pytest.raises(CommandError, match=line):
            command(desk, *options, user=user)

"""What a ticket must be for a plan: ready for it, when it is stored and when it begins."""

import importlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from dlq_admin import permissions, replay, tickets
from dlq_admin.errors import GuardRefused, NotFound
from dlq_admin.models import FailureGroup, ReplayBatch, Ticket
from dlq_admin.replay.worker import run_round
from dlq_admin.states import BatchStatus, Cause, Disposition, TicketStatus
from messaging.models import Heartbeat
from messaging.topology import CG_ORDER_CREATE
from tests.fixtures.dlq import Desk, Lost, batch_status, execute_as_owner, person, ready_ticket

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]

plan_module = importlib.import_module("dlq_admin.replay.plan")  # the package's `plan` is its act


def classified(desk: Desk, disposition: Disposition) -> None:
    tickets.classify(
        ticket_id=desk.ticket.pk, cause=Cause.HANDLER_BUG, disposition=disposition,
        analysis="because", user=desk.operator,
    )  # fmt: skip


def ready(desk: Desk, **fix: Any) -> None:
    tickets.make_ready(ticket_id=desk.ticket.pk, user=desk.operator, **fix)


def member(build: int) -> None:
    """Let a consumer of the order group report a build."""
    now = timezone.now()
    Heartbeat.objects.create(
        worker_id=f"w{build}", role="consumer", group=CG_ORDER_CREATE, build=build,
        started_at=now, beat_at=now,
    )  # fmt: skip


def status(desk: Desk) -> str:
    return Ticket.objects.get(pk=desk.ticket.pk).status


def test_what_became_ready_for_a_compensation_is_not_replayed(desk: Desk, lost: Lost) -> None:
    """Nobody has looked at the consumers: the bug that killed the message may still be there."""
    dead = lost.dead
    classified(desk, Disposition.COMPENSATE)
    ready(desk)

    with pytest.raises(GuardRefused, match=r"ready as COMPENSATE.*classify it for a replay first"):
        desk.plan(dead)
    with pytest.raises(GuardRefused, match="ready as COMPENSATE"):
        replay.plan_edited(
            ticket_id=desk.ticket.pk, message_pk=dead.pk, user=desk.operator, reason="fix",
            body=bytes(dead.body).replace(b'"producer":"seckill"', b'"producer":"repaired"'),
        )  # fmt: skip
    execute_as_owner("UPDATE dlq_ticket SET status = 'VERIFYING'")
    with pytest.raises(GuardRefused, match="compensated or discarded"):
        desk.plan(dead)

    assert not ReplayBatch.objects.exists()
    execute_as_owner("UPDATE dlq_ticket SET status = 'READY'")
    assert desk.plan(dead, disposition=Disposition.COMPENSATE).items == 1


def test_a_build_counts_only_for_the_decision_that_it_was_looked_at_for(
    desk: Desk, lost: Lost
) -> None:
    classified(desk, Disposition.REPLAY)
    tickets.begin_fix(ticket_id=desk.ticket.pk, user=desk.operator)
    member(7)
    ready(desk, fix_reference="a1b2c3", fix_build=7)
    Heartbeat.objects.update(build=6)  # it was the wrong fix, and is rolled back

    classified(desk, Disposition.COMPENSATE)
    with pytest.raises(GuardRefused, match="reports build 6"):  # named is looked at, here too
        ready(desk, fix_build=7)
    ready(desk)
    with pytest.raises(GuardRefused, match="ready as COMPENSATE"):
        desk.plan(lost.dead)

    Heartbeat.objects.update(build=8)
    tickets.send_back(ticket_id=desk.ticket.pk, reason="fixed, after all", user=desk.operator)
    ready(desk, fix_reference="d4e5f6", fix_build=8)
    assert desk.plan(lost.dead).items == 1


@pytest.mark.parametrize(
    ("now", "instead"),
    [
        ({"status": "ACKED"}, "ACKED by now: say that it is ready first"),
        ({"status": "CLASSIFIED"}, "CLASSIFIED by now: say that it is ready first"),
        ({"status": "FIXING"}, "FIXING by now: say that it is ready first"),
        (
            {"status": "WAITING", "waiting_from": "READY", "waiting_until": timezone.now()},
            "WAITING by now: take it up again first",
        ),
        ({"status": "CLOSED", "closed_at": timezone.now()}, "CLOSED by now: reopen it first"),
    ],
)
def test_a_page_that_is_out_of_date_plans_nothing(
    desk: Desk, lost: Lost, now: dict[str, Any], instead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_module, "look", None)  # a thousand dry runs would be in vain
    Ticket.objects.update(**now)
    with pytest.raises(GuardRefused, match=instead):
        desk.plan(lost.dead)
    with pytest.raises(GuardRefused, match=instead):
        replay.plan_all(
            ticket_id=desk.ticket.pk, disposition=Disposition.COMPENSATE, user=desk.operator,
            reason="all",
        )  # fmt: skip
    assert not ReplayBatch.objects.exists()


@pytest.mark.parametrize("now", ["READY", "REPLAYING", "VERIFYING"])
def test_from_ready_on_there_may_be_one_more_plan(desk: Desk, lost: Lost, now: str) -> None:
    Ticket.objects.update(status=now)
    assert desk.plan(lost.dead).items == 1


def test_a_ticket_that_is_not_there(desk: Desk, lost: Lost) -> None:
    with pytest.raises(NotFound, match="there is no ticket"):
        replay.plan(
            ticket_id=desk.ticket.pk + 1, message_pks=[lost.dead.pk], user=desk.operator,
            disposition=Disposition.REPLAY, reason="x",
        )  # fmt: skip


def sent_back(desk: Desk) -> str:
    tickets.send_back(ticket_id=desk.ticket.pk, reason="wrong fix", user=desk.operator)
    return "FIXING by now"


def merged(desk: Desk) -> str:
    group = FailureGroup.objects.create(
        consumer_group=CG_ORDER_CREATE, error_class="X", fingerprint="e" * 32
    )
    into = ready_ticket(group, assignee=desk.operator)
    user = person("tim", permissions.TRIAGE_TICKET)
    tickets.merge(ticket_id=desk.ticket.pk, into_id=into.pk, reason="same", user=user)
    return f"plan in DLQ-{into.pk}"


@pytest.mark.parametrize("colleague", [sent_back, merged])
def test_what_the_ticket_became_while_the_messages_were_judged(
    desk: Desk, lost: Lost, monkeypatch: pytest.MonkeyPatch, colleague: Callable[[Desk], str]
) -> None:
    said = []
    look = plan_module.look

    def judged(*args: Any, **more: Any) -> Any:
        said.append(colleague(desk))
        return look(*args, **more)

    monkeypatch.setattr(plan_module, "look", judged)
    with pytest.raises(GuardRefused) as refused:
        desk.plan(lost.dead)
    assert said[0] in str(refused.value)
    assert not ReplayBatch.objects.exists()


def test_the_ticket_is_locked_before_the_plan_is_written(desk: Desk, lost: Lost) -> None:
    with CaptureQueriesContext(connection) as seen:
        desk.plan(lost.dead)
    said = [query["sql"] for query in seen]
    locked = [n for n, sql in enumerate(said) if '"dlq_ticket"' in sql and "FOR UPDATE" in sql]
    written = [n for n, sql in enumerate(said) if sql.startswith('INSERT INTO "dlq_admin_replay_')]
    assert locked
    assert locked[0] < written[0]


@pytest.mark.parametrize("former", ["CLASSIFIED", "FIXING"])
def test_a_parked_ticket_is_not_replayed_before_it_is_ready(
    desk: Desk, lost: Lost, former: str
) -> None:
    batch_id = desk.approved(lost.dead)
    execute_as_owner("UPDATE dlq_ticket SET status = %s", former)  # it died again meanwhile
    parked(desk)
    run_round()
    assert batch_status(batch_id) == BatchStatus.APPROVED
    assert status(desk) == TicketStatus.WAITING
    with pytest.raises(GuardRefused, match=f"was {former}: take it up and make it ready"):
        tickets.items_started(ticket_id=desk.ticket.pk)


@pytest.mark.parametrize("former", ["READY", "REPLAYING", "VERIFYING"])
def test_a_ticket_parked_past_ready_goes_on_when_its_replay_does(
    desk: Desk, lost: Lost, former: str
) -> None:
    batch_id = desk.approved(lost.dead)
    execute_as_owner("UPDATE dlq_ticket SET status = %s", former)
    parked(desk)
    run_round()
    assert batch_status(batch_id) == BatchStatus.CANARY
    assert status(desk) == TicketStatus.REPLAYING


def parked(desk: Desk) -> None:
    tickets.park(
        ticket_id=desk.ticket.pk, until=timezone.now() + timedelta(hours=1), reason="vendor",
        user=desk.operator,
    )  # fmt: skip

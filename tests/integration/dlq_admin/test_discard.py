"""What a discard is approved for: exactly the messages of its request, and nothing in between."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from ulid import ULID

from dlq_admin import tickets
from dlq_admin.capture import own_rows
from dlq_admin.errors import GuardRefused
from dlq_admin.models import AuditEvent, BreakGlass, DlqMessage, ReplayBatch, Ticket
from dlq_admin.states import Cause, Disposition
from messaging import quarantine
from messaging.topology import CG_NOTIFY
from tests.fixtures.desk import client_of, person
from tests.fixtures.dlq import execute_as_owner

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]


@pytest.fixture
def olga(transactional_db: None) -> User:
    return person("operator", "olga")


@pytest.fixture
def lea(transactional_db: None) -> User:
    return person("incident lead", "lea")


def die(reason: str = "BAD_JSON") -> Ticket:
    """Let a message die that holds nothing; returns the ticket that has it."""
    message_id = f"evt_{ULID()}"
    quarantine.store(
        [
            quarantine.own_entry(
                group=CG_NOTIFY, message_id=message_id, reason=reason, keys=(), body=b"?"
            )
        ]
    )
    own_rows.capture_missed()
    ticket = DlqMessage.objects.get(message_id=message_id).ticket
    assert ticket is not None
    return ticket


def requested(user: User, *, messages: int = 1) -> Ticket:
    """Ask for the discard of a ticket with so many messages."""
    ticket = [die() for _ in range(messages)][-1]
    tickets.acknowledge(ticket_id=ticket.pk, user=user)
    tickets.classify(
        ticket_id=ticket.pk, cause=Cause.POISON_FORMAT, disposition=Disposition.DISCARD,
        analysis="nobody waits for it", user=user,
    )  # fmt: skip
    tickets.request_discard(ticket_id=ticket.pk, reason="noise", user=user)
    return ticket


def shown_hash(ticket: Ticket, user: User) -> str:
    """Return what the page gives the approver to sign."""
    page = client_of(user).get(f"/admin/dlq/tickets/{ticket.pk}/")
    (act,) = [one for one in page.context["acts"] if one.act.name == "approve-discard"]
    return str(act.form["messages_sha256"].value())


def approve(ticket: Ticket, user: User) -> int:
    return tickets.approve_discard(
        ticket_id=ticket.pk, messages_sha256=shown_hash(ticket, user), user=user
    )


def statuses(ticket: Ticket) -> tuple[str, list[str]]:
    messages = DlqMessage.objects.filter(ticket=ticket).order_by("pk")
    return Ticket.objects.get(pk=ticket.pk).status, list(messages.values_list("status", flat=True))


def test_the_approver_sees_how_many_and_ends_exactly_those(olga: User, lea: User) -> None:
    ticket = requested(olga, messages=2)
    client = client_of(lea)
    url = f"/admin/dlq/tickets/{ticket.pk}/"

    page = client.get(url).content.decode()
    form = {"submission": str(ULID()), "messages_sha256": shown_hash(ticket, lea)}
    answer = client.post(f"{url}approve-discard/", form)

    assert "olga asks to discard <strong>2 messages</strong>: noise" in page
    assert form["messages_sha256"] in page
    assert answer.status_code == 303
    assert statuses(ticket) == ("DISCARDED", ["CLOSED", "CLOSED"])
    asked, approved = (
        AuditEvent.objects.get(chain=ticket.pk, kind=f"DISCARD_{what}").detail
        for what in ("REQUESTED", "APPROVED")
    )
    for detail in (asked, approved):
        assert '"messages":2' in detail
        assert form["messages_sha256"] in detail


def test_what_dies_after_the_request_is_not_approved_with_it(olga: User, lea: User) -> None:
    ticket = requested(olga)
    before = shown_hash(ticket, lea)
    assert die().pk == ticket.pk

    with pytest.raises(GuardRefused, match=r"changed \(1 at the request, 2 now\): refuse this"):
        approve(ticket, lea)
    page = client_of(lea).get(f"/admin/dlq/tickets/{ticket.pk}/").content.decode()
    assert "Cannot be approved: its open messages have changed" in page
    assert statuses(ticket) == ("DISCARD_PENDING", ["OPEN", "OPEN"])

    # As the sentence says: asked anew, it covers both, and what was seen before does not.
    tickets.refuse_discard(ticket_id=ticket.pk, reason="one more", user=lea)
    tickets.request_discard(ticket_id=ticket.pk, reason="noise", user=olga)
    with pytest.raises(GuardRefused, match="another request than the one you saw"):
        tickets.approve_discard(ticket_id=ticket.pk, messages_sha256=before, user=lea)
    assert approve(ticket, lea) == 2
    assert statuses(ticket) == ("DISCARDED", ["CLOSED", "CLOSED"])


def test_as_many_messages_as_asked_for_are_not_the_same_ones(olga: User, lea: User) -> None:
    ticket = requested(olga, messages=2)
    first = DlqMessage.objects.filter(ticket=ticket).order_by("pk")[0]
    DlqMessage.objects.filter(pk=first.pk).update(
        status="CLOSED", resolution="SETTLED", closed_at=timezone.now()
    )
    die()

    with pytest.raises(GuardRefused, match=r"2 at the request, 2 now"):
        approve(ticket, lea)
    assert statuses(ticket) == ("DISCARD_PENDING", ["CLOSED", "OPEN", "OPEN"])


def test_a_request_that_does_not_say_which_messages_is_asked_anew(olga: User, lea: User) -> None:
    ticket = requested(olga)
    execute_as_owner(  # as requests were recorded before they said it
        'UPDATE dlq_admin_audit_event SET detail = \'{"reason":"noise"}\''
        " WHERE chain = %s AND kind = 'DISCARD_REQUESTED'",
        ticket.pk,
    )

    with pytest.raises(GuardRefused, match="does not say which, 1 now"):
        approve(ticket, lea)
    assert statuses(ticket) == ("DISCARD_PENDING", ["OPEN"])


@pytest.mark.parametrize("parked", [False, True])
def test_nothing_is_merged_into_a_discard_that_waits(olga: User, parked: bool) -> None:
    ticket, other = requested(olga), die("OTHER")
    if parked:
        until = timezone.now() + timedelta(hours=1)
        tickets.park(ticket_id=ticket.pk, until=until, reason="lunch", user=olga)

    with pytest.raises(GuardRefused, match=f"ticket {ticket.pk} waits for the approval of its"):
        tickets.merge(ticket_id=other.pk, into_id=ticket.pk, reason="same", user=olga)

    assert statuses(other) == ("NEW", ["OPEN"])
    assert statuses(ticket)[1] == ["OPEN"]


def a_plan(ticket: Ticket, user: User) -> ReplayBatch:
    return ReplayBatch.objects.create(
        ticket=ticket, consumer_group=CG_NOTIFY, disposition="REPLAY", rate_cap=1, live_rate=1,
        idempotency_key="k", requested_by=user, edited_by=user,
        expires_at=timezone.now() + timedelta(hours=1),
    )  # fmt: skip


def broken_glass(ticket: Ticket, user: User) -> None:
    batch = a_plan(ticket, user)
    execute_as_owner(
        "UPDATE dlq_admin_replay_batch SET status = 'ABORTED', finished_at = now() WHERE id = %s",
        batch.pk,
    )
    execute_as_owner(
        "INSERT INTO dlq_admin_break_glass (batch_id, user_id, plan_hash, reason)"
        " VALUES (%s, %s, 'h', 'it burns')",
        batch.pk,
        user.pk,
    )
    assert BreakGlass.objects.get().approved_at is None


@pytest.mark.parametrize(
    ("between", "why"), [(a_plan, "is DRAFT"), (broken_glass, "behind broken glass")]
)
def test_what_forbids_the_request_forbids_the_approval(
    olga: User, lea: User, between: Callable[[Ticket, User], object], why: str
) -> None:
    ticket = requested(olga)
    between(ticket, olga)

    with pytest.raises(GuardRefused, match=why):
        approve(ticket, lea)
    assert statuses(ticket) == ("DISCARD_PENDING", ["OPEN"])

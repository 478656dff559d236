"""A ticket's life: each guard, each permission, two people, clocks, mails."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from dlq_admin import permissions, tickets
from dlq_admin.capture import own_rows
from dlq_admin.errors import GuardRefused, StaleTicket
from dlq_admin.models import AuditEvent, DlqMessage, InvariantRun, ReplayBatch, SlaClock, Ticket
from dlq_admin.states import Cause, Disposition
from dlq_admin.tasks import keep_promises
from dlq_admin.tickets import discard
from dlq_admin.tickets.notices import announce_ticket
from messaging import quarantine
from messaging.models import Heartbeat, QuarantineRow
from messaging.pauses import pause_by_breaker
from messaging.topology import CG_ORDER_CREATE, CG_POINTS
from tests.fixtures.dlq import person
from tests.fixtures.sales import Sale, create_message, open_sale

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]

WORK = (
    permissions.TRIAGE_TICKET, permissions.CLASSIFY_TICKET, permissions.CLOSE_TICKET,
    permissions.DISCARD_MESSAGE,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _quick_passwords(settings) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def olga(transactional_db) -> User:
    return person("olga", *WORK)


@pytest.fixture
def lena(transactional_db) -> User:
    return person("lena", permissions.APPROVE_DISCARD, *WORK)


def die(*, reason: str = "BUG", user: str = "alice", sale: Sale | None = None) -> Ticket:
    """Let a reservation's message die; returns the ticket that has it."""
    reservation = (sale or open_sale()).reserve(user)
    quarantine.store(
        [quarantine.entry_of(create_message(reservation), group=CG_ORDER_CREATE, reason=reason)]
    )
    own_rows.capture_missed()
    ticket = DlqMessage.objects.get(message_id=reservation.message_id).ticket
    assert ticket is not None
    return ticket


def die_unreadable() -> Ticket:
    """Let a message die that holds nothing: it does not tell whose it is."""
    message = create_message(open_sale().reserve("mallory"))
    row = quarantine.own_entry(
        group=CG_ORDER_CREATE, message_id=message.message_id, reason="BAD_JSON", keys=(), body=b"?"
    )
    quarantine.store([row])
    own_rows.capture_missed()
    return Ticket.objects.get(failure_group__error_class="BAD_JSON")


def classified(ticket: Ticket, user: User, *, cause=Cause.HANDLER_BUG, disposition) -> Ticket:
    tickets.acknowledge(ticket_id=ticket.pk, user=user)
    tickets.classify(
        ticket_id=ticket.pk, cause=cause, disposition=disposition, analysis="because", user=user
    )
    return ticket


def member(build: int, *, group: str = CG_ORDER_CREATE, age_s: int = 0) -> None:
    now = timezone.now()
    Heartbeat.objects.create(
        worker_id=f"{group}:{build}:{age_s}", role="consumer", group=group, build=build,
        started_at=now, beat_at=now - timedelta(seconds=age_s),
    )  # fmt: skip


def approve_discard(ticket: Ticket, user: User) -> int:
    """Approve what was asked for, as the page shows it."""
    asked = discard.asked(ticket.pk)
    assert asked is not None
    return tickets.approve_discard(
        ticket_id=ticket.pk, messages_sha256=asked.messages_sha256, user=user
    )


def status(ticket: Ticket) -> str:
    return Ticket.objects.get(pk=ticket.pk).status


def kinds(ticket: Ticket) -> list[str]:
    found = AuditEvent.objects.filter(chain=ticket.pk).order_by("seq")
    return list(found.values_list("kind", flat=True))


def test_every_service_refuses_who_may_not_and_nothing_changes():
    nobody, ticket = person("vera", permissions.VIEW_CONSOLE), die()
    pk, until = ticket.pk, timezone.now() + timedelta(hours=1)
    calls = [
        lambda: tickets.acknowledge(ticket_id=pk, user=nobody),
        lambda: tickets.assign(ticket_id=pk, assignee_id=nobody.pk, user=nobody),
        lambda: tickets.park(ticket_id=pk, until=until, reason="r", user=nobody),
        lambda: tickets.resume(ticket_id=pk, reason="r", user=nobody),
        lambda: tickets.reopen(ticket_id=pk, reason="r", user=nobody),
        lambda: tickets.merge(ticket_id=pk, into_id=pk + 1, reason="r", user=nobody),
        lambda: tickets.classify(
            ticket_id=pk, cause=Cause.UNKNOWN, disposition=Disposition.REPLAY, analysis="a",
            user=nobody,
        ),
        lambda: tickets.begin_fix(ticket_id=pk, user=nobody),
        lambda: tickets.make_ready(ticket_id=pk, user=nobody),
        lambda: tickets.send_back(ticket_id=pk, reason="r", user=nobody),
        lambda: tickets.request_discard(ticket_id=pk, reason="r", user=nobody),
        lambda: tickets.approve_discard(ticket_id=pk, messages_sha256="", user=nobody),
        lambda: tickets.refuse_discard(ticket_id=pk, reason="r", user=nobody),
        lambda: tickets.close(ticket_id=pk, user=nobody),
    ]  # fmt: skip
    before = Ticket.objects.values().get(pk=pk)

    for call in calls:
        with pytest.raises(PermissionDenied):
            call()

    assert Ticket.objects.values().get(pk=pk) == before
    assert kinds(ticket) == ["TICKET_OPENED", "MESSAGE_ATTACHED"]


def test_a_fix_counts_when_every_live_member_reports_its_build(olga):
    ticket = classified(die(), olga, disposition=Disposition.REPLAY)
    with pytest.raises(GuardRefused, match="only a transient cause"):
        tickets.make_ready(ticket_id=ticket.pk, user=olga)
    tickets.begin_fix(ticket_id=ticket.pk, user=olga)

    def ready() -> None:
        tickets.make_ready(ticket_id=ticket.pk, user=olga, fix_reference="a1b2c3", fix_build=7)

    with pytest.raises(GuardRefused, match="name the fix"):
        tickets.make_ready(ticket_id=ticket.pk, user=olga, fix_build=7)
    with pytest.raises(GuardRefused, match="no live member"):
        ready()
    member(7, group=CG_POINTS)
    member(7, age_s=60)
    with pytest.raises(GuardRefused, match="no live member"):
        ready()
    member(7)
    member(6)
    with pytest.raises(GuardRefused, match="reports build 6"):
        ready()
    Heartbeat.objects.filter(build=6).delete()
    ready()

    assert status(ticket) == "READY"
    assert kinds(ticket)[-3:] == ["TICKET_CLASSIFIED", "FIX_BEGUN", "TICKET_READY"]
    tickets.send_back(ticket_id=ticket.pk, reason="wrong fix", user=olga)
    assert status(ticket) == "FIXING"


def test_a_transient_cause_is_ready_at_once_only_while_the_group_works(olga):
    ticket = classified(die(), olga, cause=Cause.TRANSIENT, disposition=Disposition.REPLAY)
    with pytest.raises(GuardRefused, match="no live member"):
        tickets.make_ready(ticket_id=ticket.pk, user=olga)
    member(1)
    pause_by_breaker(group=CG_ORDER_CREATE, reason="too many")
    with pytest.raises(GuardRefused, match="is paused"):
        tickets.make_ready(ticket_id=ticket.pk, user=olga)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM messaging_grouppause")

    tickets.make_ready(ticket_id=ticket.pk, user=olga)
    assert status(ticket) == "READY"


def test_a_discard_takes_two_people_and_no_held_reservation(olga, lena):
    held = classified(die(), olga, disposition=Disposition.DISCARD)
    with pytest.raises(GuardRefused, match="1 accepted buyers"):
        tickets.request_discard(ticket_id=held.pk, reason="noise", user=olga)
    assert status(held) == "CLASSIFIED"

    ticket = classified(die_unreadable(), lena, disposition=Disposition.DISCARD)
    tickets.request_discard(ticket_id=ticket.pk, reason="noise", user=lena)
    with pytest.raises(PermissionDenied, match="another person"):
        approve_discard(ticket, lena)
    with pytest.raises(PermissionDenied):
        approve_discard(ticket, olga)
    with pytest.raises(IntegrityError), transaction.atomic():  # nor does the database believe it
        Ticket.objects.filter(pk=ticket.pk).update(discard_approved_by=lena)
    assert DlqMessage.objects.filter(ticket=ticket, status="OPEN").count() == 1

    paul = person("paul", permissions.APPROVE_DISCARD)
    tickets.refuse_discard(ticket_id=ticket.pk, reason="show me", user=paul)
    assert status(ticket) == "CLASSIFIED"
    tickets.request_discard(ticket_id=ticket.pk, reason="noise", user=lena)
    assert approve_discard(ticket, paul) == 1

    message = DlqMessage.objects.get(ticket=ticket)
    assert (status(ticket), message.status, message.resolution) == (
        "DISCARDED", "CLOSED", "DISCARDED",
    )  # fmt: skip
    row = QuarantineRow.objects.get(message_id=message.message_id)
    assert (row.status, row.resolution) == ("RESOLVED", "DISCARDED")
    assert kinds(ticket)[-2:] == ["DISCARD_REQUESTED", "DISCARD_APPROVED"]


def test_a_discard_is_refused_when_a_reservation_is_held_by_the_time_of_the_approval(olga, lena):
    ticket = classified(die_unreadable(), olga, disposition=Disposition.DISCARD)
    tickets.request_discard(ticket_id=ticket.pk, reason="noise", user=olga)
    QuarantineRow.objects.filter(message_id=ticket.messages.get().message_id).update(
        reservation_id="rsv_01JD0000000000000000000000"
    )
    with pytest.raises(GuardRefused, match="1 accepted buyers"):
        approve_discard(ticket, lena)
    assert status(ticket) == "DISCARD_PENDING"
    assert ticket.messages.get().status == "OPEN"


def verifying(olga: User) -> Ticket:
    ticket = classified(die(), olga, disposition=Disposition.REPLAY)
    Ticket.objects.filter(pk=ticket.pk).update(status="READY")
    tickets.items_started(ticket_id=ticket.pk)
    tickets.items_started(ticket_id=ticket.pk)
    tickets.items_finished(ticket_id=ticket.pk)
    assert status(ticket) == "VERIFYING"
    return ticket


def test_a_ticket_closes_only_with_proof(olga):
    ticket = verifying(olga)

    def refused(why: str) -> None:
        with pytest.raises(GuardRefused, match=why):
            tickets.close(ticket_id=ticket.pk, user=olga)
        assert why in tickets.why_not_close(ticket_id=ticket.pk)
        assert status(ticket) == "VERIFYING"

    refused("1 messages have not ended")
    DlqMessage.objects.filter(ticket=ticket).update(
        status="CLOSED", resolution="VERIFIED", closed_at=timezone.now()
    )
    refused("nobody has looked at the invariants")
    run = InvariantRun.objects.create(ticket=ticket, passed=False, checked=1)
    refused("found a breach")
    InvariantRun.objects.filter(pk=run.pk).update(
        passed=True, created_at=timezone.now() - timedelta(minutes=11)
    )
    refused("older than 10 minutes")
    InvariantRun.objects.create(ticket=ticket, passed=True, checked=1)
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE dlq_admin_audit_event DISABLE TRIGGER USER")
        cursor.execute(
            "UPDATE dlq_admin_audit_event SET actor = 'eve' WHERE chain = %s AND seq = 2",
            [ticket.pk],
        )
        try:
            refused("the audit chain is broken")
        finally:
            cursor.execute(
                "UPDATE dlq_admin_audit_event SET actor = 'system' WHERE chain = %s AND seq = 2",
                [ticket.pk],
            )
            cursor.execute("ALTER TABLE dlq_admin_audit_event ENABLE TRIGGER USER")

    tickets.close(ticket_id=ticket.pk, user=olga)

    assert status(ticket) == "CLOSED"
    assert not SlaClock.objects.filter(ticket=ticket, stopped_at__isnull=True).exists()
    with pytest.raises(StaleTicket, match="CLOSED"):
        tickets.close(ticket_id=ticket.pk, user=olga)


def test_the_same_failure_during_the_proof_sends_the_ticket_back(olga):
    ticket = verifying(olga)
    assert die(user="bob").pk == ticket.pk
    assert status(ticket) == "FIXING"


def test_a_parked_ticket_waits_a_day_at_most_and_its_clocks_wait_with_it(olga):
    ticket = die()
    soon = timezone.now() + timedelta(hours=1)
    for until in (timezone.now() + timedelta(hours=25), timezone.now() - timedelta(minutes=1)):
        with pytest.raises(GuardRefused, match="24 hours"):
            tickets.park(ticket_id=ticket.pk, until=until, reason="vendor", user=olga)
    with pytest.raises(GuardRefused, match="reason"):
        tickets.park(ticket_id=ticket.pk, until=soon, reason=" ", user=olga)
    tickets.park(ticket_id=ticket.pk, until=soon, reason="vendor", user=olga)
    due = SlaClock.objects.get(ticket=ticket, kind="ACK").due_at
    SlaClock.objects.filter(ticket=ticket).update(
        started_at=due - timedelta(hours=9), remind_at=due - timedelta(hours=8),
        due_at=due - timedelta(hours=7),
    )  # fmt: skip
    assert keep_promises() == 0  # it waits: nothing rings

    Ticket.objects.filter(pk=ticket.pk).update(
        waiting_until=timezone.now(), status_at=timezone.now() - timedelta(hours=8)
    )
    keep_promises()

    row = Ticket.objects.get(pk=ticket.pk)
    assert (row.status, row.waiting_until, row.waiting_from) == ("NEW", None, "")
    assert SlaClock.objects.get(ticket=ticket, kind="ACK").due_at > due


def test_clocks_remind_once_escalate_once_and_mail(olga, lena, settings, mailoutbox):
    from django.contrib.auth.models import Group

    settings.SECKILL_MAIL, settings.SECKILL_ONCALL_MAIL = True, ["oncall@example.test"]
    lead, _ = Group.objects.get_or_create(name=permissions.INCIDENT_LEAD)
    User.objects.filter(pk=lena.pk).update(email="lena@example.test")
    lena.groups.add(lead)
    ticket = die()
    assert keep_promises() == 0
    clock = SlaClock.objects.get(ticket=ticket, kind="ACK")
    assert (clock.due_at - clock.started_at) == timedelta(minutes=5)  # a sale runs

    def age(minutes: int) -> None:
        by = timedelta(minutes=minutes)
        SlaClock.objects.filter(pk=clock.pk).update(
            started_at=clock.started_at - by, remind_at=clock.remind_at - by,
            due_at=clock.due_at - by,
        )  # fmt: skip

    age(3)
    assert [keep_promises(), keep_promises()] == [1, 0]
    assert mailoutbox[-1].to == ["oncall@example.test"]
    age(6)
    assert [keep_promises(), keep_promises()] == [1, 0]
    assert mailoutbox[-1].to == ["lena@example.test", "oncall@example.test"]
    assert "the promise to ack is broken" in mailoutbox[-1].subject
    assert kinds(ticket)[-2:] == ["SLA_REMINDED", "SLA_BREACHED"]
    assert not any("alice" in m.subject + m.body for m in mail.outbox)
    assert announce_ticket(ticket.pk) is True

    tickets.acknowledge(ticket_id=ticket.pk, user=olga)
    assert SlaClock.objects.get(pk=clock.pk).stopped_at is not None


def test_a_merged_ticket_hands_over_its_messages_and_what_dies_later(olga):
    sale = open_sale()
    first, second = die(reason="BUG", sale=sale), die(reason="TIMEOUT", user="bob", sale=sale)
    with pytest.raises(GuardRefused, match="itself"):
        tickets.merge(ticket_id=first.pk, into_id=first.pk, reason="same", user=olga)

    tickets.merge(ticket_id=second.pk, into_id=first.pk, reason="same cause", user=olga)

    assert status(second) == "MERGED"
    assert DlqMessage.objects.filter(ticket=first).count() == 2
    assert die(reason="TIMEOUT", user="carol", sale=sale).pk == first.pk
    assert Ticket.objects.get(pk=first.pk).message_count == 3
    with pytest.raises(StaleTicket):
        tickets.acknowledge(ticket_id=second.pk, user=olga)


def test_a_plan_under_way_blocks_what_would_pull_the_ground_from_under_it(olga):
    ticket = classified(die(), olga, disposition=Disposition.REPLAY)
    other = die(reason="TIMEOUT", user="bob")
    ReplayBatch.objects.create(
        ticket=ticket, consumer_group=CG_ORDER_CREATE, disposition="REPLAY", rate_cap=1,
        live_rate=1, idempotency_key="k", requested_by=olga, edited_by=olga,
        expires_at=timezone.now() + timedelta(hours=1),
    )  # fmt: skip
    with pytest.raises(GuardRefused, match="is DRAFT"):
        tickets.classify(
            ticket_id=ticket.pk, cause=Cause.UNKNOWN, disposition=Disposition.DISCARD,
            analysis="a", user=olga,
        )  # fmt: skip
    with pytest.raises(GuardRefused, match="is DRAFT"):
        tickets.merge(ticket_id=ticket.pk, into_id=other.pk, reason="same", user=olga)
    assert (status(ticket), status(other)) == ("CLASSIFIED", "NEW")


def test_a_closed_ticket_opens_again_with_a_reason_unless_a_newer_one_is_at_it(olga):
    ticket = verifying(olga)
    DlqMessage.objects.update(status="CLOSED", resolution="VERIFIED", closed_at=timezone.now())
    InvariantRun.objects.create(ticket=ticket, passed=True, checked=1)
    tickets.close(ticket_id=ticket.pk, user=olga)
    with pytest.raises(GuardRefused, match="reason"):
        tickets.reopen(ticket_id=ticket.pk, reason="", user=olga)

    tickets.reopen(ticket_id=ticket.pk, reason="a buyer wrote", user=olga)

    assert status(ticket) == "REOPENED"
    tickets.acknowledge(ticket_id=ticket.pk, user=olga)
    assert status(ticket) == "ACKED"

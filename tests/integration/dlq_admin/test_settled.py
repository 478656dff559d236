"""What ends by itself: items of our own that were settled elsewhere, tickets with nothing left."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from dlq_admin import permissions, tickets
from dlq_admin.capture import own_rows, settled
from dlq_admin.errors import GuardRefused
from dlq_admin.models import AuditEvent, DlqMessage, InvariantRun, ReplayBatch, Ticket
from dlq_admin.states import Cause, Disposition
from messaging import quarantine
from messaging.models import QuarantineRow
from messaging.topology import CG_ORDER_CREATE
from orders.compensate import reject_compensated
from orders.database import begin
from orders.rebuild import loss
from orders.rebuild.gate import rebuild_gate
from tests.fixtures.dlq import person
from tests.fixtures.sales import open_sale

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]


@pytest.fixture
def olga(transactional_db, settings) -> User:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    return person(
        "olga", permissions.TRIAGE_TICKET, permissions.CLASSIFY_TICKET, permissions.CLOSE_TICKET
    )


def status(ticket: Ticket) -> str:
    return Ticket.objects.get(pk=ticket.pk).status


def test_a_lost_gates_ticket_closes_when_its_rebuild_has_resolved_the_item():
    sale = open_sale()
    run = loss.note_loss(activity_id=sale.activity_id, kind=loss.LOST, reason="all keys gone")
    assert run is not None
    own_rows.capture_new(after=0)
    assert settled.settle_open() == (0, 0)  # nobody has rebuilt it
    assert (DlqMessage.objects.get().status, Ticket.objects.get().status) == ("OPEN", "NEW")
    rebuild_gate(activity_id=sale.activity_id, force=True, reason="done", poll_s=0.01)

    assert settled.settle_open() == (1, 0)

    row = DlqMessage.objects.get()
    assert (row.status, row.resolution) == ("CLOSED", "SETTLED")
    assert row.evidence["quarantine"] == QuarantineRow.objects.get().resolution != ""
    assert Ticket.objects.get().status == "CLOSED"

    loss.note_loss(activity_id=sale.activity_id, kind=loss.LOST, reason="and once more")
    own_rows.capture_missed()
    assert settled.settle_open() == (0, 0)
    assert (DlqMessage.objects.get().status, Ticket.objects.get().status) == ("OPEN", "REOPENED")


def test_a_consumers_message_needs_its_inbox_row_whatever_became_of_its_quarantine_row():
    sale = open_sale()
    reservation = sale.reserve("alice")
    sale.hold(reservation)
    own_rows.capture_new(after=0)
    with transaction.atomic():  # as a replay's sender does before its proof
        quarantine.resolve(
            group=CG_ORDER_CREATE, message_ids=[reservation.message_id], resolution="REPLAYED"
        )

    assert settled.settle_open() == (0, 0)
    assert DlqMessage.objects.get().status == "OPEN"


@pytest.mark.parametrize("stage", ["CLASSIFIED", "FIXING", "READY"])
def test_a_ticket_whose_last_message_settles_while_others_ended_otherwise_goes_to_its_proof(
    olga, stage
):
    sale = open_sale()
    compensated, ordered = (sale.reserve(user) for user in ("alice", "bob"))
    for reservation in (compensated, ordered):
        sale.hold(reservation)
    own_rows.capture_new(after=0)
    ticket = Ticket.objects.get()
    tickets.acknowledge(ticket_id=ticket.pk, user=olga)
    tickets.classify(
        ticket_id=ticket.pk, cause=Cause.HANDLER_BUG, disposition=Disposition.COMPENSATE,
        analysis="because", user=olga,
    )  # fmt: skip
    with transaction.atomic():
        reject_compensated(compensated.reservation_id, now=begin())
    Ticket.objects.filter(pk=ticket.pk).update(status=stage)
    settled.settle_open()
    assert status(ticket) == stage  # one message is still open
    sale.deliver(ordered)
    plan = ReplayBatch.objects.create(
        ticket=ticket, consumer_group=CG_ORDER_CREATE, disposition="REPLAY", rate_cap=1,
        live_rate=1, idempotency_key="k", requested_by=olga, edited_by=olga,
        expires_at=timezone.now() + timedelta(hours=1),
    )  # fmt: skip
    settled.settle_open()
    assert status(ticket) == stage  # a plan is under way
    ReplayBatch.objects.filter(pk=plan.pk).update(status="ABORTED")

    settled.settle_open()

    assert status(ticket) == "VERIFYING"
    newest = AuditEvent.objects.filter(chain=ticket.pk).order_by("-seq").first()
    assert newest is not None
    assert newest.kind == "MESSAGES_ENDED"
    ended = DlqMessage.objects.order_by("pk").values_list("resolution", flat=True)
    assert list(ended) == ["COMPENSATED", "SETTLED"]
    with pytest.raises(GuardRefused, match="invariants"):
        tickets.close(ticket_id=ticket.pk, user=olga)
    InvariantRun.objects.create(ticket=ticket, passed=True, checked=1)
    tickets.close(ticket_id=ticket.pk, user=olga)
    assert status(ticket) == "CLOSED"

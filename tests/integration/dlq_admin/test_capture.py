"""Capture on the real database: raw bytes kept before the ack, once, whatever comes twice."""

import hashlib
import time
from dataclasses import replace

import pytest
from django.db import connection
from prometheus_client import REGISTRY

from dlq_admin.capture import dead_letters, own_rows, settled
from dlq_admin.capture.drain import drain_once, set_gauges
from dlq_admin.models import AuditEvent, DlqMessage, DlqOccurrence, FailureGroup, SlaClock, Ticket
from messaging import quarantine
from messaging.broker.base import ReceivedMessage
from messaging.topology import CG_ORDER_CREATE, dlq_topic
from orders.compensate import reject_compensated
from orders.database import begin
from tests.fixtures.sales import create_message, open_sale

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]


def letter(message: ReceivedMessage, **more) -> ReceivedMessage:
    """Return the copy of a message that its dead letter topic gives out."""
    return replace(
        message, topic=dlq_topic(CG_ORDER_CREATE), delivery_attempt=8, born_at_ms=1_700_000_000_000,
        stored_at_ms=int(time.time() * 1000), **more,
    )  # fmt: skip


class OneReceiver:
    """A receiver that has some messages and remembers what was acked."""

    def __init__(self, *messages: ReceivedMessage) -> None:
        self.messages, self.acked = list(messages), []

    def receive(self, **_):
        return self.messages

    def ack(self, messages, *, timeout_ms):
        self.acked += [message.message_id for message in messages]
        return []


def test_a_dead_letter_holds_its_reservation_and_opens_a_ticket():
    sale = open_sale(units=3)
    reservation = sale.reserve("alice")
    message = letter(create_message(reservation))

    assert dead_letters.capture(CG_ORDER_CREATE, [message]) == 1

    row = DlqMessage.objects.get()
    assert bytes(row.body) == message.body
    assert row.body_sha256 == hashlib.sha256(message.body).hexdigest()
    assert (row.reservation_id, row.order_id) == (
        reservation.reservation_id,
        reservation.order_id,
    )
    assert (row.topic, row.status, row.error_class) == ("ORDER_CREATE_V1", "OPEN", "DEAD_LETTER")
    assert sale.quarantine_row(reservation) == ("OPEN", 1)
    ticket = Ticket.objects.get()
    assert (row.ticket_id, ticket.status, ticket.severity, ticket.in_sale) == (
        ticket.pk, "NEW", "SEV1", True,
    )  # fmt: skip
    assert (ticket.owner, ticket.message_count) == ("platform", 1)
    assert set(SlaClock.objects.values_list("kind", flat=True)) == {"ACK", "PLAN", "RESOLVE"}
    kinds = list(AuditEvent.objects.order_by("seq").values_list("kind", flat=True))
    assert kinds == ["TICKET_OPENED", "MESSAGE_ATTACHED"]


def test_the_same_letter_again_changes_nothing():
    reservation = open_sale().reserve("alice")
    message = letter(create_message(reservation))
    dead_letters.capture(CG_ORDER_CREATE, [message])
    before = DlqMessage.objects.values().get()

    # Two copies of one send, redelivered: another handle, attempt and place.
    again = [
        replace(message, delivery_attempt=9, queue_offset=n, receipt_handle="x") for n in (5, 6)
    ]
    dead_letters.capture(CG_ORDER_CREATE, again)

    own_rows.capture_new(after=0)  # nor does the desk take its own row for another death
    own_rows.capture_missed()

    assert DlqMessage.objects.values().get() == before
    assert DlqOccurrence.objects.count() == 1
    assert AuditEvent.objects.count() == 2


def test_the_next_send_that_dies_is_a_death_of_its_own_in_the_same_ticket():
    reservation = open_sale().reserve("alice")
    message = letter(create_message(reservation))
    dead_letters.capture(CG_ORDER_CREATE, [message])

    dead_letters.capture(CG_ORDER_CREATE, [replace(message, born_at_ms=message.born_at_ms + 900)])

    assert DlqMessage.objects.get().occurrence_count == DlqOccurrence.objects.count() == 2
    assert Ticket.objects.get().message_count == 1


def test_a_settled_effect_closes_by_itself_with_the_inbox_row_and_opens_no_ticket():
    sale = open_sale()
    reservation = sale.reserve("alice")
    sale.deliver(reservation)

    assert dead_letters.capture(CG_ORDER_CREATE, [letter(create_message(reservation))]) == 0

    row = DlqMessage.objects.get()
    assert (row.status, row.resolution, row.ticket_id) == ("CLOSED", "SETTLED", None)
    assert (row.evidence["inbox"], row.evidence["order_id"]) == ("CREATED", reservation.order_id)
    assert sale.quarantine_row(reservation) == ("RESOLVED", 1)
    assert not Ticket.objects.exists()


def test_settled_after_its_death_the_message_ends_and_its_untouched_ticket_closes():
    sale = open_sale()
    reservation = sale.reserve("alice")
    dead_letters.capture(CG_ORDER_CREATE, [letter(create_message(reservation))])
    assert settled.settle_open() == (0, 0)
    sale.deliver(reservation)

    assert settled.settle_open() == (1, 0)

    assert DlqMessage.objects.get().resolution == "SETTLED"
    ticket = Ticket.objects.get()
    assert (ticket.status, ticket.closed_by) == ("CLOSED", None)
    assert not SlaClock.objects.filter(stopped_at__isnull=True).exists()
    assert sale.order_status(reservation) == "CREATED"


def test_compensated_by_hand_it_ends_as_compensated():
    from django.db import transaction

    reservation = open_sale().reserve("alice")
    dead_letters.capture(CG_ORDER_CREATE, [letter(create_message(reservation))])
    with transaction.atomic():
        reject_compensated(reservation.reservation_id, now=begin())

    settled.settle_open()

    assert DlqMessage.objects.get().resolution == "COMPENSATED"
    assert Ticket.objects.get().status == "NEW"  # a person decided: a person closes it


def test_our_own_quarantine_rows_come_to_the_desk_by_cause():
    sale = open_sale()
    for user in ("alice", "bob"):
        sale.hold(sale.reserve(user))
    poison = replace(create_message(sale.reserve("carol")), body=b"\x00not json\xff")
    quarantine.store(
        [quarantine.entry_of(poison, group=CG_ORDER_CREATE, reason="BAD_JSON", error="byte 0")]
    )

    assert own_rows.capture_new(after=0)[0] == 3
    assert own_rows.capture_missed() == 0

    assert sorted(Ticket.objects.values_list("title", "message_count")) == [
        ("BAD_JSON in ORDER_CREATE_PG_V1", 1),
        ("BUG in ORDER_CREATE_PG_V1", 2),
    ]
    assert bytes(DlqMessage.objects.get(error_class="BAD_JSON").body) == poison.body
    assert FailureGroup.objects.get(error_class="BUG").message_count == 2


def test_a_row_that_died_again_is_one_more_occurrence():
    sale = open_sale()
    reservation = sale.reserve("alice")
    sale.hold(reservation)
    own_rows.capture_new(after=0)
    sale.hold(reservation)

    assert own_rows.capture_missed() == 1
    assert own_rows.capture_missed() == 0
    assert DlqMessage.objects.get().occurrence_count == 2


def test_nothing_is_acked_that_was_not_stored(monkeypatch):
    receiver = OneReceiver(letter(create_message(open_sale().reserve("alice"))))
    monkeypatch.setattr(dead_letters, "store_deaths", lambda *_: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        drain_once(CG_ORDER_CREATE, receiver)

    assert receiver.acked == []
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM messaging_quarantine")
        assert cursor.fetchone() == (0,)


def test_a_letter_whose_ack_was_lost_is_acked_when_it_comes_again():
    reservation = open_sale().reserve("alice")
    receiver = OneReceiver(letter(create_message(reservation)))

    drain_once(CG_ORDER_CREATE, receiver)
    drain_once(CG_ORDER_CREATE, receiver)

    assert receiver.acked == [reservation.message_id] * 2
    assert DlqOccurrence.objects.count() == 1


def test_a_recurrence_within_a_week_opens_the_closed_ticket_again_and_later_a_new_one():
    sale = open_sale()
    first, second, third = (sale.reserve(user) for user in ("alice", "bob", "carol"))
    dead_letters.capture(CG_ORDER_CREATE, [letter(create_message(first))])
    sale.deliver(first)
    settled.settle_open()

    dead_letters.capture(CG_ORDER_CREATE, [letter(create_message(second))])

    ticket = Ticket.objects.get()
    assert (ticket.status, ticket.reopened_count, ticket.closed_at) == ("REOPENED", 1, None)
    assert SlaClock.objects.filter(ticket=ticket, stopped_at__isnull=True).count() == 3

    sale.deliver(second)
    settled.settle_open()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE dlq_ticket SET closed_at = now() - interval '8 days'")
    dead_letters.capture(CG_ORDER_CREATE, [letter(create_message(third))])
    assert list(Ticket.objects.order_by("pk").values_list("status", flat=True)) == ["CLOSED", "NEW"]


def test_open_tickets_are_counted_by_severity():
    dead_letters.capture(CG_ORDER_CREATE, [letter(create_message(open_sale().reserve("alice")))])

    set_gauges()

    def value(severity: str) -> float | None:
        return REGISTRY.get_sample_value("mq_dlq_tickets_open", {"severity": severity})

    assert (value("SEV1"), value("SEV2"), value("SEV3")) == (1, 0, 0)

"""What was published and not consumed is sent once more, then a ticket."""

import pytest

from messaging import inbox, outbox
from messaging.inbox import InboxEntry
from messaging.selectors import GroupLag
from orders.contracts import ORDER_PAID
from orders.database import fetch
from orders.events import ORDER_COLUMNS, order_event, order_record
from orders.reconcile import message_side
from orders.reconcile.run import reconcile
from tests.fixtures.reconcile import ordered
from tests.fixtures.sales import open_sale
from tests.fixtures.sql import execute, rows

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("nothing_is_too_young")]


@pytest.fixture
def _django_db_helper(stores):
    """Real commits."""


@pytest.fixture
def sale():
    return open_sale(units=5)


@pytest.fixture
def published(sale, monkeypatch):
    """An ORDER_PAID that was sent and reached no group."""
    monkeypatch.setattr(message_side, "LEAST_AGE_S", -60)
    monkeypatch.setattr(
        message_side, "group_lag", lambda group: GroupLag(members=1, lag_s=-20.0, drain_per_s=1.0)
    )
    reservation = ordered(sale)
    execute("DELETE FROM messaging_outbox")
    ((*row,),) = fetch(
        f"SELECT {ORDER_COLUMNS} FROM orders_order o WHERE o.order_id = %s",  # noqa: S608
        (reservation.order_id,),
    )
    order = order_record(tuple(row))
    message = order_event(ORDER_PAID, order, now=order.created_at)
    outbox.add([message])
    sent()
    return message.event_id


def sent():
    execute("UPDATE messaging_outbox SET state = 1, sent_at = now() WHERE state = 0")


def mine(report):
    return [(line.kind, line.action) for line in report.lines if "consumed" in line.kind]


def groups():
    return [
        group
        for group in message_side.enabled_groups()
        if group.has_inbox and ORDER_PAID in group.tags
    ]


def test_what_was_published_but_not_consumed_is_sent_once_more_then_a_ticket(published):
    first = reconcile(repair=True)

    assert sorted({action for _, action in mine(first)}) == ["GONE", "REPAIRED"]
    assert len(mine(first)) == len(groups()) >= 1
    copies = rows(
        "SELECT payload, properties::text FROM messaging_outbox WHERE event_id = %s ORDER BY id",
        published,
    )
    assert len(copies) == 2  # one more copy, the same bytes, for all groups
    assert copies[0] == copies[1]
    assert mine(reconcile(repair=True)) == []  # on its way again
    sent()
    assert mine(reconcile(repair=True)) == [("not_consumed_after_replay", "TICKET")] * len(groups())
    assert mine(reconcile(repair=True)) == [("not_consumed_after_replay", "KNOWN")] * len(groups())


def test_a_replay_that_cannot_be_sent_is_a_ticket_too(published):
    reconcile(repair=True)
    execute("UPDATE messaging_outbox SET state = 2 WHERE replay_id <> ''")

    assert mine(reconcile(repair=True)) == [("not_consumed_after_replay", "TICKET")] * len(groups())


def test_what_was_never_sent_is_no_matter_of_this(published):
    execute("UPDATE messaging_outbox SET state = 2, sent_at = NULL")  # the sender gave it up

    assert mine(reconcile(repair=True)) == []


def test_what_every_group_dealt_with_or_gave_up_is_not_sent_again(published):
    for number, group in enumerate(groups()):
        if number == 0:
            execute(
                "INSERT INTO messaging_quarantine (consumer_group, message_id, source, status,"
                " topic, tag, keys, properties, body, body_sha256, reason, error,"
                " delivery_attempt, occurrences, first_at, last_at, resolution)"
                " VALUES (%s, %s, 'DLQ', 'OPEN', '', '', '', '{}', '', '', 'X', '', 1, 1, now(),"
                " now(), '')",
                group.name,
                published,
            )
        else:
            entry = InboxEntry(message_id=published, outcome="APPLIED")
            inbox.claim(group=group.name, entries=[entry])

    assert mine(reconcile(repair=True)) == []


def test_rows_that_are_not_sent_are_one_ticket_a_topic(sale, monkeypatch):
    monkeypatch.setattr(message_side, "LEAST_AGE_S", -60)
    ordered(sale)

    report = reconcile(repair=True)

    stuck = [(line.subject, line.action) for line in report.lines if line.kind == "outbox_stuck"]
    assert stuck == [("ORDER_EVENT_V1", "TICKET"), ("ORDER_TIMEOUT_V1", "TICKET")]

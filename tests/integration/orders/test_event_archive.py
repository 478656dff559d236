"""The archive keeps every event as it came, once, for ever unchanged."""

import random

import pytest
from django.db import IntegrityError

from messaging import event_archive
from messaging.disposition import DONE, DUPLICATE
from messaging.topology import ORDER_EVENT
from orders.archive import ARCHIVE_HANDLER
from tests.fixtures.effects import event_of, life_of
from tests.fixtures.sales import received
from tests.fixtures.sql import execute, rows

pytestmark = pytest.mark.django_db(transaction=True)


def test_raw_bytes_once_whatever_is_delivered_again():
    life = life_of()

    assert list(ARCHIVE_HANDLER.handle(life)) == [DONE] * 3
    assert list(ARCHIVE_HANDLER.handle([*life, life[0]])) == [DUPLICATE] * 4

    stored = event_archive.events_of(event_of(life[0]).order_id)
    assert [record.body for record in stored] == [message.body for message in life]
    assert [record.event_id for record in stored] == [message.message_id for message in life]


def test_shuffled_arrival_reads_the_same_story():
    lives = [life_of(f"u{n}") for n in range(5)]
    messages = [message for life in lives for message in life]
    random.shuffle(messages)
    for message in messages:
        ARCHIVE_HANDLER.handle([message])

    for life in lives:
        read = event_archive.events_of(event_of(life[0]).order_id)
        assert [record.tag for record in read] == ["ORDER_CREATED", "ORDER_PAID", "ORDER_REFUNDED"]


def test_events_lie_in_their_own_day():
    ARCHIVE_HANDLER.handle(life_of())
    (name,) = rows("SELECT DISTINCT tableoid::regclass::text FROM messaging_event_archive")[0]
    assert name.removeprefix("messaging_event_archive_").isdigit()


@pytest.mark.parametrize(
    "statement",
    ["UPDATE messaging_event_archive SET body = ''", "DELETE FROM messaging_event_archive"],
)
def test_nobody_changes_or_deletes_a_row(statement):
    life = life_of()
    ARCHIVE_HANDLER.handle(life)

    with pytest.raises(IntegrityError, match="append-only"):
        execute(statement)

    assert rows("SELECT body FROM messaging_event_archive ORDER BY occurred_at") == [
        (message.body,) for message in life
    ]


def test_a_body_that_is_no_event_goes_to_quarantine_and_the_rest_is_kept():
    life = life_of()
    bad = received(topic=ORDER_EVENT, body=b"{}", message_id="evt_bad", tag="ORDER_PAID")

    decisions = list(ARCHIVE_HANDLER.handle([life[0], bad]))

    assert decisions[0] == DONE
    assert decisions[1].disposition == "QUARANTINE"
    assert rows("SELECT count(*) FROM messaging_event_archive") == [(1,)]

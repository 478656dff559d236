"""More messages than PostgreSQL takes parameters: batches and discards end all the same."""

from typing import NamedTuple

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dlq_admin.models import DlqMessage
from dlq_admin.states import BatchStatus, ItemStatus, Resolution
from dlq_admin.tickets.messages import resolve
from tests.fixtures.dlq import Desk, Lost, batch_status, item, work_off
from tests.fixtures.sql import execute

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]

MANY = 66_000  # PostgreSQL takes 65 535 parameters


class Row(NamedTuple):
    """What is read of a message that ends; a model's instance takes ten times as long to make."""

    pk: int
    consumer_group: str
    message_id: str


def copied(dead: DlqMessage, count: int) -> None:
    """Put so many open copies of a dead message, which hold nothing, into its ticket."""
    taken = {
        "message_id": "'copy_' || n", "body": "''::bytea", "reservation_id": "''", "user_id": "''",
    }  # fmt: skip
    columns = [field.column for field in DlqMessage._meta.local_fields if not field.primary_key]
    execute(
        f"INSERT INTO dlq_message ({', '.join(columns)})"  # noqa: S608 - names of the model
        f" SELECT {', '.join(taken.get(column, column) for column in columns)}"
        " FROM dlq_message, generate_series(1, %s) AS n WHERE id = %s",
        count,
        dead.pk,
    )


def test_a_batch_ends_however_many_messages_are_open(desk: Desk, lost: Lost) -> None:
    dead = lost.dead
    copied(dead, MANY)
    mine = DlqMessage.objects.filter(ticket=desk.ticket)

    batch_id = desk.approved(dead)
    with CaptureQueriesContext(connection) as seen:
        work_off(rounds=4)

    assert item(dead).status == ItemStatus.VERIFIED
    assert batch_status(batch_id) == BatchStatus.COMPLETED
    assert mine.filter(status="OPEN", version=dead.version).count() == MANY
    # The end of a batch is no affair of messages that it had nothing to do with.
    locks = [one["sql"] for one in seen if "FOR UPDATE" in one["sql"]]
    assert not [sql for sql in locks if '"dlq_message"."ticket_id" = ' in sql]


def test_any_number_of_messages_ends_in_one_statement(desk: Desk, lost: Lost) -> None:
    """As a discard of a whole ticket does; those that ended meanwhile stay as they are."""
    dead = lost.dead
    gone = [Row(dead.pk + n, dead.consumer_group, f"gone_{n}") for n in range(1, MANY)]

    with CaptureQueriesContext(connection) as seen:
        ended = resolve(
            [dead, *gone], resolution=Resolution.DISCARDED, evidence={"reason": "noise"}
        )

    assert (ended, len(seen)) == (1, 2)  # one more for the group's quarantine rows
    dead.refresh_from_db()
    assert (dead.status, dead.resolution, dead.version) == ("CLOSED", "DISCARDED", 2)
    assert dead.evidence == {"reason": "noise"}
    assert dead.closed_at is not None
    assert lost.sale.quarantine_row(lost.reservation)[0] == "RESOLVED"

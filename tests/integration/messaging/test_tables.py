"""Django's idea of the partitioned tables, their days, and what happens at a day's border."""

from datetime import UTC, date, datetime, timedelta

import pytest
from django.conf import settings
from django.db import connection, transaction
from django.db.models import Model
from ulid import ULID

from messaging import inbox, outbox, partitions
from messaging.inbox import InboxEntry
from messaging.models import ArchivedEvent, InboxRow, OutboxRow
from messaging.outbox import OutboxMessage
from tests.integration.messaging.messages import event

pytestmark = pytest.mark.django_db(transaction=True)

GROUP = "CG_SECKILL_ORDER_CREATE_PG_V1"
DJANGO_TYPES = {
    "bigint": {"BigIntegerField"},
    "smallint": {"SmallIntegerField"},
    "integer": {"IntegerField"},
    "text": {"TextField"},
    "bytea": {"BinaryField"},
    "jsonb": {"JSONField"},
    "uuid": {"UUIDField"},
    "timestamp with time zone": {"DateTimeField"},
}


def test_everything_is_migrated_and_models_have_no_changes_left() -> None:
    from django.core.management import call_command

    call_command("makemigrations", "messaging", check=True, dry_run=True, skip_checks=True)


@pytest.mark.parametrize("model", [InboxRow, OutboxRow, ArchivedEvent])
def test_model_and_table_have_the_same_columns_types_and_nulls(model: type[Model]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT column_name, data_type, is_nullable = 'YES' FROM information_schema.columns"
            " WHERE table_name = %s AND table_schema = current_schema()",
            [model._meta.db_table],
        )
        table = {name: (kind, null) for name, kind, null in cursor.fetchall()}

    fields = {field.column: field for field in model._meta.concrete_fields}

    assert fields.keys() == table.keys()
    for name, (kind, null) in table.items():
        assert fields[name].get_internal_type() in DJANGO_TYPES[kind], name
        assert fields[name].null is null, name


def test_database_keys_contain_the_partition_columns() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT conrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint"
            " WHERE contype = 'p' AND conrelid = ANY(%s::text[]::regclass[])",
            [list(partitions.TABLES)],
        )
        keys = dict(cursor.fetchall())

    assert keys == {
        "messaging_inbox": "PRIMARY KEY (consumer_group, message_id)",
        "messaging_outbox": "PRIMARY KEY (id, created_at)",
        "messaging_event_archive": "PRIMARY KEY (event_id)",
    }


def test_migrate_made_the_whole_window_and_making_it_again_makes_nothing() -> None:
    ahead = settings.SECKILL_PARTITION_DAYS_AHEAD

    assert partitions.days_left() >= ahead - 1  # a run may go past midnight
    again = partitions.ensure_partitions(ahead - 1)

    assert again == partitions.PartitionReport(made=(), failed=())
    assert partitions.default_rows() == dict.fromkeys(partitions.TABLES, 0)


def test_bounds_are_the_first_ids_of_a_day() -> None:
    day = date(2026, 3, 1)
    start = datetime(2026, 3, 1, tzinfo=UTC)

    bound = partitions.message_id_bound(day)

    assert bound == f"evt_{ULID.from_datetime(start)}"[:14]
    assert f"evt_{ULID.from_datetime(start - timedelta(milliseconds=1))}" < bound
    assert f"evt_{ULID.from_datetime(start)}" >= bound


def test_a_day_whose_rows_lie_in_default_is_reported_and_the_others_are_made() -> None:
    far = date(2030, 5, 5)
    stray = f"evt_{ULID.from_datetime(datetime(2030, 5, 6, 12, tzinfo=UTC))}"
    with transaction.atomic():
        inbox.claim(group=GROUP, entries=[InboxEntry(message_id=stray, outcome="APPLIED")])
    assert partitions.default_rows()["messaging_inbox"] == 1

    report = partitions.ensure_partitions(1, today=far)
    try:
        assert report.failed == ("messaging_inbox_20300506",)
        assert set(report.made) == {
            "messaging_inbox_20300504",
            "messaging_inbox_20300505",
            "messaging_outbox_20300504",
            "messaging_outbox_20300505",
            "messaging_outbox_20300506",
            "messaging_event_archive_20300504",
            "messaging_event_archive_20300505",
            "messaging_event_archive_20300506",
        }
        assert partitions.days_left(far) == 0
        assert partitions.days_left(far + timedelta(days=1)) == -1
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE " + ", ".join(report.made))


def test_selling_across_a_border_of_days_keeps_ids_unique_on_both_sides() -> None:
    """Case 41: a batch whose ids lie on two days is one batch like any other."""
    midnight = datetime.combine(
        datetime.now(tz=UTC).date() + timedelta(days=2), datetime.min.time(), tzinfo=UTC
    )
    instants = [midnight - timedelta(milliseconds=1), midnight, midnight + timedelta(seconds=1)]
    ids = [f"evt_{ULID.from_datetime(instant)}" for instant in instants]
    entries = [InboxEntry(message_id=i, outcome="CREATED", order_id="ord_x") for i in ids]

    with transaction.atomic():
        first = inbox.claim(group=GROUP, entries=entries)
    with transaction.atomic():
        second = inbox.claim(group=GROUP, entries=entries)
        other_group = inbox.claim(group="CG_OTHER", entries=entries)
        known = inbox.outcomes(group=GROUP, message_ids=ids)

    assert (first, second, other_group) == (set(ids), set(), set(ids))
    assert known.keys() == set(ids)
    with connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT tableoid::regclass::text FROM messaging_inbox ORDER BY 1")
        used = [name for (name,) in cursor.fetchall()]
    assert used == [
        partitions.partition_name("messaging_inbox", (midnight - timedelta(days=1)).date()),
        partitions.partition_name("messaging_inbox", midnight.date()),
    ]


def test_outbox_rows_go_to_todays_partition_with_the_bytes_as_given() -> None:
    body = '{"name":"雪 é \\u0000"}'.encode()

    with transaction.atomic():
        outbox.add(
            [
                OutboxMessage(
                    topic="ORDER_EVENT_V1",
                    tag="ORDER_CREATED",
                    event_id=f"evt_{ULID()}",
                    keys=["rsv_1", "ord_1"],
                    body=body,
                    lane=outbox.LANE_EVENTS,
                    properties={"traceparent": "00-a-b-01"},
                )
            ]
        )
        outbox.add([])

    row = OutboxRow.objects.get()
    assert row.payload.encode() == body
    assert (row.keys, row.lane, row.state, row.attempts) == ("rsv_1 ord_1", 1, 0, 0)
    assert row.properties == {"traceparent": "00-a-b-01"}
    assert partitions.default_rows()["messaging_outbox"] == 0


def test_outbox_rows_vanish_with_a_rolled_back_transaction() -> None:
    with transaction.atomic():
        outbox.add([event()])
        assert OutboxRow.objects.exists()
        transaction.set_rollback(True)

    assert not OutboxRow.objects.exists()

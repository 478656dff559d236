"""Old days go, unfinished ones stay, and no event is dropped before it is in a file."""

import gzip
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from ulid import ULID

from messaging import event_export, inbox, partitions, quarantine, retention
from messaging.facts import NO_FACTS
from messaging.inbox import InboxEntry
from messaging.models import QuarantineSource
from messaging.quarantine import QuarantineEntry
from messaging.retention import RefusedDay, RetentionReport
from orders.archive import ARCHIVE_HANDLER
from tests.fixtures.effects import life_of

pytestmark = pytest.mark.django_db(transaction=True)

DAY = date(2031, 3, 1)
NOON = datetime(2031, 3, 1, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def days(settings, tmp_path) -> Iterator[None]:
    """Three far days of each table; the horizons are 45, 7 and 7 days."""
    settings.SECKILL_ARCHIVE_DIR = str(tmp_path / "archive")
    made = partitions.ensure_partitions(2, today=DAY).made
    yield
    with connection.cursor() as cursor:
        for name in made:
            cursor.execute(f"DROP TABLE IF EXISTS {name}")


def _run(days_later: float, **options: bool) -> RetentionReport:
    """Run as if it were so many days after the middle of DAY; only the far days are told."""
    report = retention.run(now=NOON + timedelta(days=days_later), **options)
    return RetentionReport(
        dropped=tuple(name for name in report.dropped if "_203" in name),
        exported=report.exported,
        refused=tuple(item for item in report.refused if "_203" in item.partition),
    )


def _exists(name: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass(%s) IS NOT NULL", [name])
        return bool(cursor.fetchone()[0])


def _outbox_row(state: int, event_id: str = "evt_x") -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO messaging_outbox (created_at, topic, tag, event_id, keys, payload, lane,"
            " state, sent_at) VALUES (%s, 'T', 'T', %s, '', '{}', 1, %s,"
            " CASE WHEN %s = 1 THEN now() END)",
            [NOON, event_id, state, state],
        )


def _quarantined(group: str, message_id: str) -> None:
    quarantine.store(
        [
            QuarantineEntry(
                group=group,
                message_id=message_id,
                source=QuarantineSource.OUTBOX,
                topic="T",
                tag="T",
                keys="",
                properties={},
                body=b"{}",
                reason="BUG",
                error="",
                delivery_attempt=1,
                facts=NO_FACTS,
            )
        ]
    )


def _only_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """The present days of the database are none of these tests' business."""
    real = partitions.days
    monkeypatch.setattr(partitions, "days", lambda t: [d for d in real(t) if d >= DAY])


@pytest.fixture(autouse=True)
def _far(days: None, monkeypatch: pytest.MonkeyPatch) -> None:
    _only_far(monkeypatch)


def test_a_day_goes_when_its_last_instant_is_past_the_horizon_and_not_before():
    assert "messaging_outbox_20310301" not in _run(7).dropped
    report = _run(8)

    assert report.dropped == ("messaging_outbox_20310301", "messaging_event_archive_20310301")
    assert report.refused == ()
    assert not _exists("messaging_outbox_20310301")
    assert _exists("messaging_outbox_20310302")
    assert "messaging_inbox_20310301" not in _run(45).dropped
    assert "messaging_inbox_20310301" in _run(46).dropped
    assert _run(46) == RetentionReport(dropped=(), exported=(), refused=())


def test_a_dry_run_changes_nothing():
    assert "messaging_outbox_20310301" in _run(8, dry_run=True).dropped
    assert _exists("messaging_outbox_20310301")


def test_an_unsent_row_keeps_its_day_until_it_is_sent():
    _outbox_row(state=0)
    name = "messaging_outbox_20310301"

    assert _run(9).refused == (RefusedDay(partition=name, reason="it has unsent rows"),)
    assert _exists(name)

    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {name} SET state = 1, sent_at = now()")  # noqa: S608
    assert name in _run(9).dropped


def test_a_row_that_was_given_up_keeps_its_day_until_its_item_is_resolved():
    _outbox_row(state=2, event_id="evt_poison")
    _quarantined(quarantine.OUTBOX_GROUP, "evt_poison")

    (kept,) = _run(9).refused
    assert kept.reason == "a row that was given up waits for a person"

    with transaction.atomic():
        quarantine.resolve(
            group=quarantine.OUTBOX_GROUP, message_ids=["evt_poison"], resolution="REPLAYED"
        )
    assert kept.partition in _run(9).dropped


def test_an_open_item_keeps_the_inbox_day_of_its_message():
    message_id = f"evt_{ULID.from_datetime(NOON)}"
    with transaction.atomic():
        inbox.claim(group="CG_A", entries=[InboxEntry(message_id=message_id, outcome="APPLIED")])
    _quarantined("CG_B", message_id)

    refused = {item.partition for item in _run(60).refused}

    assert refused == {"messaging_inbox_20310301", "messaging_event_archive_20310301"}
    with transaction.atomic():
        assert inbox.outcomes(group="CG_A", message_ids=[message_id])


def test_what_becomes_unfinished_while_waiting_for_the_lock_is_seen(monkeypatch):
    """The first look is without a lock: a row may appear before the second."""
    real, looks = retention._require_finished, []

    def look(table, day):
        looks.append(table)
        real(table, day)
        if len(looks) == 1:
            _outbox_row(state=0)

    monkeypatch.setattr(retention, "_require_finished", look)
    monkeypatch.setattr(retention, "_horizons", lambda: (("messaging_outbox", 7),))

    assert [item.reason for item in _run(8).refused] == ["it has unsent rows"]
    assert _exists("messaging_outbox_20310301")
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM messaging_outbox WHERE created_at = %s", [NOON])
        assert cursor.fetchone() == (1,)  # still attached


def _archived(monkeypatch) -> list[bytes]:
    """Three events whose ids lie on DAY."""
    monkeypatch.setattr("orders.events.ULID", lambda: ULID.from_datetime(NOON))
    life = life_of()
    ARCHIVE_HANDLER.handle(life[::-1])
    return [message.body for message in life]


def test_events_are_in_a_file_before_their_day_is_dropped(monkeypatch, settings):
    bodies = _archived(monkeypatch)
    folder = Path(settings.SECKILL_ARCHIVE_DIR)

    report = _run(8)

    assert report.exported == ("events-20310301.jsonl.gz",)
    with gzip.open(folder / report.exported[0]) as lines:
        read = [json.loads(line) for line in lines]
    assert [event["body"].encode() for event in read] == bodies  # by their own time and version
    assert not _exists("messaging_event_archive_20310301")
    assert event_export.verify(folder) == []
    out = StringIO()
    call_command("verify_event_archive", stdout=out)
    assert out.getvalue() == "1 files checked, every file is as it was written\n"


@pytest.mark.parametrize("wiped", ["folder", "manifest", "lines"])
def test_a_wiped_archive_does_not_pass(tmp_path, wiped):
    folder = tmp_path / "archive"
    if wiped != "folder":
        folder.mkdir()
    if wiped == "lines":
        (folder / event_export.MANIFEST).touch()
    err = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("verify_event_archive", str(folder), stderr=err)
    assert ended.value.code == 1
    assert err.getvalue() == f"{folder / event_export.MANIFEST} is missing or empty\n"


def test_a_line_of_the_manifest_that_cannot_be_read_is_told(tmp_path):
    (tmp_path / event_export.MANIFEST).write_bytes(b'{"file": \n[]\n')
    assert event_export.verify(tmp_path) == [
        "line 1 of the manifest cannot be read",
        "line 2 of the manifest cannot be read",
    ]


def test_without_a_folder_no_event_is_dropped(monkeypatch, settings):
    _archived(monkeypatch)
    settings.SECKILL_ARCHIVE_DIR = ""
    assert [item.partition for item in _run(8).refused] == ["messaging_event_archive_20310301"]
    assert _exists("messaging_event_archive_20310301")


def test_an_event_that_comes_while_its_day_is_exported_keeps_the_day(monkeypatch):
    _archived(monkeypatch)
    real = event_export.export_day

    def export(day, folder):
        done = real(day, folder)
        _archived(monkeypatch)
        return done

    monkeypatch.setattr(event_export, "export_day", export)
    (kept,) = _run(8).refused
    assert kept.reason == "events-20310301.jsonl.gz holds 3 of 6 events"
    monkeypatch.undo()


def test_the_same_day_exports_to_the_same_bytes_and_one_line_of_manifest(monkeypatch, tmp_path):
    _archived(monkeypatch)
    first = event_export.export_day(DAY, tmp_path)
    assert event_export.export_day(DAY, tmp_path) == first
    assert len((tmp_path / event_export.MANIFEST).read_bytes().splitlines()) == 1


def test_a_day_that_is_exported_again_is_what_its_newest_line_says(monkeypatch, settings):
    """An event came while the file was written: the day was refused, and the next run is right."""
    _archived(monkeypatch)
    folder = Path(settings.SECKILL_ARCHIVE_DIR)
    real, first = event_export.export_day, []

    def export(day, folder):
        done = real(day, folder)
        if not first:
            first.append((folder / done.file).read_bytes())
            _archived(monkeypatch)
        return done

    monkeypatch.setattr(event_export, "export_day", export)
    assert [item.reason for item in _run(8).refused] == [
        "events-20310301.jsonl.gz holds 3 of 6 events"
    ]
    assert _run(8).refused == ()

    assert event_export.verify(folder) == []
    lines = (folder / event_export.MANIFEST).read_bytes().splitlines(keepends=True)
    assert [json.loads(line)["rows"] for line in lines] == [3, 6]
    (folder / "events-20310301.jsonl.gz").write_bytes(first[0])  # the older file is a change
    (folder / event_export.MANIFEST).write_bytes(
        lines[0].replace(b'"rows":3', b'"rows":4') + lines[1]
    )
    assert event_export.verify(folder) == [
        "line 2 of the manifest does not follow the one before",
        "events-20310301.jsonl.gz was changed",
    ]


def test_a_changed_missing_or_foreign_file_is_found(monkeypatch, tmp_path):
    _archived(monkeypatch)
    done = event_export.export_day(DAY, tmp_path)
    event_export.export_day(DAY + timedelta(days=1), tmp_path)
    assert event_export.verify(tmp_path) == []

    (tmp_path / done.file).write_bytes(b"x")
    (tmp_path / "events-20310302.jsonl.gz").unlink()
    (tmp_path / "events-20310303.jsonl.gz").write_bytes(b"y")
    assert event_export.verify(tmp_path) == [
        "events-20310301.jsonl.gz was changed",
        "events-20310302.jsonl.gz is missing",
        "events-20310303.jsonl.gz is not in the manifest",
    ]
    lines = (tmp_path / event_export.MANIFEST).read_bytes().splitlines(keepends=True)
    (tmp_path / event_export.MANIFEST).write_bytes(lines[1])
    assert "line 1 of the manifest does not follow the one before" in event_export.verify(tmp_path)


def test_the_command_names_what_had_to_stay(monkeypatch, capsys):
    refused = RetentionReport(
        dropped=("messaging_inbox_1",),
        exported=("f",),
        refused=(RefusedDay(partition="p", reason="r"),),
    )
    monkeypatch.setattr(retention, "run", lambda **_: refused)
    with pytest.raises(SystemExit):
        call_command("run_retention")
    printed = capsys.readouterr()
    assert printed.out.splitlines() == ["dropped messaging_inbox_1", "wrote f"]
    assert printed.err.splitlines() == ["kept p: r"]

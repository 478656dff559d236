"""The audit record: chained by the database, append-only, and every change is found."""

import csv
import io
import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction
from django.db.models import ProtectedError
from django.utils import timezone

from dlq_admin.audit import record
from dlq_admin.audit.anchor import write_anchor
from dlq_admin.audit.export import export, safe_cell
from dlq_admin.audit.verify import verify
from dlq_admin.models import AuditEvent
from tests.fixtures.dlq import AUDITOR, person
from tests.fixtures.sales import at_once
from tests.fixtures.sql import rows

pytestmark = pytest.mark.django_db(transaction=True)


def write(ticket: int = 7, times: int = 3, **detail: Any) -> None:
    for number in range(times):
        with transaction.atomic():
            record(ticket_id=ticket, kind="NOTED", actor="system", detail={"n": number, **detail})


def as_superuser(sql: str, *params: Any) -> int:
    """Do what only a superuser can: with all triggers off."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(sql, params)
        return cursor.rowcount


def findings() -> list[str]:
    return [finding.what for finding in verify().findings]


def test_events_are_numbered_per_ticket_and_verify() -> None:
    write(7)
    write(8, 2)
    record(ticket_id=None, kind="EXPORTED", actor="system", detail={})

    result = verify()

    assert result.ok
    assert (result.chains, result.events) == (3, 6)
    assert list(AuditEvent.objects.filter(chain=7).values_list("seq", flat=True)) == [1, 2, 3]
    assert verify(ticket_id=8).events == 2


def test_odd_text_is_hashed_alike_on_both_sides() -> None:
    record(
        ticket_id=1,
        kind="NOTED",
        actor="ö\n☃'\"",
        detail={"ключ": "line\nbreak \u2028 \x00 emoji 🎉", "b": [1, None, {"a": 1.5}]},
    )

    assert verify().ok


def test_writers_of_one_ticket_make_one_chain() -> None:
    def one() -> None:
        write(5, 10)

    assert at_once([one] * 4) == [None] * 4

    result = verify()
    assert result.ok
    assert result.events == 40


def test_a_rolled_back_event_leaves_no_gap() -> None:
    write(7, 1)
    with transaction.atomic():
        record(ticket_id=7, kind="NOTED", actor="system", detail={})
        transaction.set_rollback(True)
    write(7, 1)

    assert verify().ok
    assert verify().events == 2


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE dlq_admin_audit_event SET actor = 'other'",
        "DELETE FROM dlq_admin_audit_event",
        "TRUNCATE dlq_admin_audit_event",
        "UPDATE dlq_admin_audit_anchor SET heads = '{}'",
        "DELETE FROM dlq_admin_audit_anchor",
        "TRUNCATE dlq_admin_audit_anchor",
        "DELETE FROM dlq_admin_audit_head",
        "TRUNCATE dlq_admin_audit_head",
    ],
)
def test_even_the_owner_cannot_change_it_by_accident(sql: str) -> None:
    write()
    write_anchor()

    with pytest.raises(DatabaseError, match="append-only"), connection.cursor() as cursor:
        cursor.execute(sql)

    assert verify().ok
    assert verify().events == 3


def test_what_the_caller_says_about_hashes_is_ignored() -> None:
    write(7, 1)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO dlq_admin_audit_event (chain, seq, at, kind, actor, detail, prev_hash,"
            " hash) VALUES (7, 99, now() - interval '1 year', 'NOTED', 'x', '{}', 'a', 'b')"
        )

    assert verify().ok
    event = AuditEvent.objects.get(chain=7, seq=2)
    assert timezone.now() - event.at < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("detail", '{"n":2}'),
        ("actor", "sYstem"),
        ("kind", "NOTES"),
        ("at", "2020-01-01T00:00:00Z"),
        ("user_id", None),
    ],
)
def test_one_byte_changed_by_a_superuser_is_found(column: str, value: Any) -> None:
    user = person("olga")
    for number in range(3):
        record(ticket_id=7, kind="NOTED", actor=user, detail={"n": number})

    changed = as_superuser(
        f"UPDATE dlq_admin_audit_event SET {column} = %s WHERE seq = 2",  # noqa: S608
        value,
    )

    assert changed == 1
    assert findings() == ["event 7.2 was changed: its hash is another"]


def test_a_row_taken_out_of_the_middle_is_found() -> None:
    write()
    as_superuser("DELETE FROM dlq_admin_audit_event WHERE seq = 2")
    assert findings() == ["event 7.3 follows 1: events are missing"]


def test_a_cut_tail_is_found() -> None:
    write()
    as_superuser("DELETE FROM dlq_admin_audit_event WHERE seq = 3")
    assert findings() == ["event 7.3 is not there as its chain's end: a cut tail"]


def test_a_cut_tail_with_a_corrected_end_is_found_by_the_anchor() -> None:
    write()
    write_anchor()
    as_superuser("DELETE FROM dlq_admin_audit_event WHERE seq = 3")
    as_superuser(
        "UPDATE dlq_admin_audit_head SET seq = 2, hash = (SELECT hash FROM dlq_admin_audit_event"
        " WHERE chain = 7 AND seq = 2)"
    )
    assert findings() == ["event 7.3 was anchored and is gone"]


def test_a_chain_rewritten_from_scratch_is_found_by_the_anchor() -> None:
    write()
    write_anchor()
    as_superuser("DELETE FROM dlq_admin_audit_event")
    as_superuser("DELETE FROM dlq_admin_audit_head")
    write(note="another story")

    assert findings() == ["event 7.3 is not the event that was anchored"]


def test_a_rewritten_anchor_is_found_by_its_hash_in_the_log() -> None:
    write()
    old = write_anchor()
    as_superuser("DELETE FROM dlq_admin_audit_anchor")
    new = write_anchor()

    assert verify().ok
    assert new != old
    found = verify(anchor=old).findings
    assert [finding.what for finding in found] == [f"no anchor has the hash {old}"]


def test_an_anchor_tells_only_what_grew() -> None:
    write(7)
    first = write_anchor()
    assert write_anchor() == ""
    write(8, 1)
    second = write_anchor()

    assert len({first, second, ""}) == 3
    told = [json.loads(row[0]) for row in rows("SELECT heads FROM dlq_admin_audit_anchor")]
    assert [sorted(heads) for heads in told] == [["7"], ["8"]]
    assert verify().ok


def test_a_user_who_acted_cannot_be_deleted() -> None:
    user = person("olga")
    record(ticket_id=7, kind="NOTED", actor=user, detail={})
    with pytest.raises(ProtectedError):
        user.delete()
    assert User.objects.filter(username="olga").exists()


def test_the_command_exits_1_on_a_finding() -> None:
    write()
    out = StringIO()
    call_command("verify_audit", stdout=out)
    assert "1 chains, 3 events" in out.getvalue()
    as_superuser("UPDATE dlq_admin_audit_event SET actor = 'x' WHERE seq = 1")
    with pytest.raises(SystemExit) as left:
        call_command("verify_audit", "--json", stdout=(out := StringIO()))
    assert left.value.code == 1
    assert json.loads(out.getvalue())["findings"][0]["seq"] == 1


def test_the_command_compares_the_anchor_with_one_ticket_too() -> None:
    write()
    anchor = write_anchor()
    call_command("verify_audit", "--ticket", "7", "--anchor", anchor, stdout=StringIO())
    out = StringIO()
    with pytest.raises(SystemExit) as left:
        call_command("verify_audit", "--ticket", "7", "--anchor", "f" * 64, stdout=out)
    assert left.value.code == 1
    assert f"no anchor has the hash {'f' * 64}" in out.getvalue()
    as_superuser("UPDATE dlq_admin_audit_anchor SET heads = '{}'")  # its hash stays
    assert not verify(ticket_id=7, anchor=anchor).ok


def test_a_ticket_without_a_chain_is_no_success() -> None:
    write()
    with pytest.raises(CommandError, match="ticket 999 has no audit chain"):
        call_command("verify_audit", "--ticket", "999", stdout=StringIO())


def test_exports_carry_every_event_and_no_formula() -> None:
    record(ticket_id=7, kind="NOTED", actor='=HYPERLINK("http://x")', detail={"a": "=1+1"})
    auditor = person("audrey", *AUDITOR)

    table = list(csv.reader(io.StringIO("".join(export(user=auditor, form="csv")))))
    lines = [json.loads(line) for line in export(user=auditor, form="jsonl", ticket_id=7)]

    assert table[0][:5] == ["ticket", "seq", "at", "kind", "actor"]
    assert table[1][4] == '\'=HYPERLINK("http://x")'
    assert table[2][3] == "AUDIT_EXPORTED"  # that it was exported is told as well
    assert lines[0]["actor"] == '=HYPERLINK("http://x")'
    assert lines[0]["detail"] == {"a": "=1+1"}
    assert [line["kind"] for line in lines] == ["NOTED", "AUDIT_EXPORTED"]


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@a", "\t=1", " =1", "|x", "%0A"])
def test_cells_that_a_spreadsheet_would_run_are_disarmed(text: str) -> None:
    assert safe_cell(text) == f"'{text}"


def test_export_needs_its_permission() -> None:
    with pytest.raises(PermissionDenied):
        export(user=person("olga"), form="csv")
    assert rows("SELECT count(*) FROM dlq_admin_audit_event") == [(0,)]

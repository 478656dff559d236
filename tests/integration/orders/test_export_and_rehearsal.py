"""Orders as CSV, and the guarded removal of rehearsals."""

import csv
import io

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import AsyncClient, Client
from django.urls import reverse

from inventory.models import Activity, AdmissionOptions, DenyEntry
from messaging.disposition import DONE
from orders import export
from orders.cancel_order import cancel_by_user
from orders.handlers import ORDER_TIMEOUT_HANDLER
from orders.rehearsal import RehearsalRefused, purge_rehearsal
from tests.fixtures.purchases import attempt
from tests.fixtures.sales import (
    open_sale,
    outbox_messages,
    run_projection,
    run_releases,
)
from tests.fixtures.sql import execute, rows
from tests.fixtures.web import in_thread

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]


# -- CSV -------------------------------------------------------------------------------------------
def test_no_cell_is_a_formula():
    cells = {
        "=1+1": "'=1+1",
        "@x": "'@x",
        "+1": "'+1",
        "-1": "'-1",
        "\tx": "'\tx",
        "\rx": "'\rx",
        "a=b": "a=b",
        'a,"b': 'a,"b',
        None: "",
        5: "5",
    }
    assert {value: export.safe_cell(value) for value in cells} == cells


def test_the_file_holds_every_order_once_across_pages(monkeypatch):
    monkeypatch.setattr(export, "_PAGE", 2)
    sale, other = open_sale(), open_sale()
    users = ["@eve", "bob", "cid", "dan", "eli"]
    sale.deliver(*sale.reserve_all(users))
    other.deliver(other.reserve("zoe"))

    one = list(csv.DictReader(io.StringIO("".join(export.csv_lines(activity_id=sale.activity_id)))))
    both = "".join(export.csv_lines())

    assert sorted(row["user_id"] for row in one) == ["'@eve", "bob", "cid", "dan", "eli"]
    assert {row["amount_cents"] for row in one} == {"1999"}
    assert len(both.splitlines()) == 7
    assert one[0]["paid_at"] == ""


def test_admin_and_command_give_the_same_file(tmp_path, capsys):
    sale = open_sale()
    sale.deliver(*sale.reserve_all(["ann", "bob"]))
    client = Client()
    client.force_login(User.objects.create_superuser("root"))

    response = client.get(reverse("admin:orders_csv"), {"activity": sale.activity_id})
    served = b"".join(response.streaming_content)
    call_command("export_orders", activity=sale.activity_id, out=tmp_path / "o.csv")
    call_command("export_orders", activity=sale.activity_id)

    assert (
        response["Content-Disposition"] == f'attachment; filename="orders-{sale.activity_id}.csv"'
    )
    assert served == (tmp_path / "o.csv").read_bytes()
    assert capsys.readouterr().out.encode() == served
    assert client.get(reverse("admin:orders_csv"), {"activity": "1x"}).status_code == 400


def test_what_the_command_cannot_write_is_one_line(tmp_path):
    out = tmp_path / "nowhere" / "o.csv"
    with pytest.raises(CommandError, match=r"^cannot write .*/o\.csv: No such file"):
        call_command("export_orders", out=out)


@pytest.mark.parametrize("command", ["export_orders", "rebuild_projection"])
def test_an_unknown_sale_is_an_error_and_not_an_empty_success(command):
    with pytest.raises(CommandError, match="there is no activity 999999"):
        call_command(command, activity=999_999)


async def test_an_asynchronous_server_streams_it_in_pieces(monkeypatch):
    monkeypatch.setattr(export, "_PAGE", 1)

    def prepare():
        sale = open_sale()
        sale.deliver(*sale.reserve_all(["ann", "bob"]))
        return User.objects.create_superuser("root")

    root = await in_thread(prepare)
    client = AsyncClient()
    await client.aforce_login(root)
    response = await client.get(reverse("admin:orders_csv"))
    pieces = [piece async for piece in response.streaming_content]
    await sync_to_async(lambda: connection.close())()
    assert len([piece for piece in pieces if piece]) == 3  # headings, ann, bob


# -- rehearsals ----------------------------------------------------------------------------------
@pytest.fixture
def rehearsal(redis_client):
    """A closed test sale at rest: one order refunded, one cancelled, one denied buyer."""
    sale = open_sale()
    Activity.objects.filter(pk=sale.activity_id).update(is_test=True)
    AdmissionOptions.objects.create(activity_id=sale.activity_id)
    DenyEntry.objects.create(activity_id=sale.activity_id, user_id="eve", reason="x")
    paid, canceled = sale.reserve_all(["ann", "bob"])
    sale.deliver(paid, canceled)
    attempt(paid, refunded=False)
    execute(
        "UPDATE orders_order SET status = 'PAID', paid_at = now() WHERE order_id = %s",
        paid.order_id,
    )

    cancel_by_user(order_id=canceled.order_id, user_id="bob")
    run_releases()
    run_projection()
    execute("UPDATE messaging_outbox SET state = 1, sent_at = now()")
    Activity.objects.filter(pk=sale.activity_id).update(status="CLOSED")
    return sale


TABLES = (
    "orders_order",
    "orders_reservation",
    "orders_query",
    "inventory_sku",
    "inventory_stock",
    "inventory_stockledger",
    "inventory_denyentry",
    "inventory_admissionoptions",
)


def counts(activity_id):
    return {
        table: rows(f"SELECT count(*) FROM {table} WHERE activity_id = %s", activity_id)[0][0]  # noqa: S608
        for table in TABLES
    }


def test_a_rehearsal_goes_wholly_and_alone(rehearsal, redis_client, capsys):
    other = open_sale()
    kept = other.reserve("zoe")
    other.deliver(kept)
    others = counts(other.activity_id)

    call_command("purge_rehearsal", rehearsal.activity_id)
    assert "nothing was changed" in capsys.readouterr().out
    assert counts(rehearsal.activity_id)["orders_order"] == 2

    call_command("purge_rehearsal", rehearsal.activity_id, yes=True)

    assert set(counts(rehearsal.activity_id).values()) == {0}
    assert rows("SELECT count(*) FROM orders_payment_attempt") == [(0,)]
    assert rows("SELECT count(*) FROM orders_item") == [(1,)]
    assert not Activity.objects.filter(pk=rehearsal.activity_id).exists()
    left = redis_client.keys(f"seckill:{{{rehearsal.activity_id}}}:sku:*")
    assert left == []
    assert counts(other.activity_id) == others
    assert other.gate_status(kept) == "RESERVED"


def test_what_is_still_delivered_afterwards_changes_nothing(rehearsal):
    triggers = outbox_messages("ORDER_TIMEOUT_V1")
    purge_rehearsal(activity_id=rehearsal.activity_id)
    assert list(ORDER_TIMEOUT_HANDLER.handle(triggers)) == [DONE, DONE]
    assert rows("SELECT count(*) FROM orders_order") == [(0,)]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("UPDATE inventory_activity SET is_test = false", "real sale"),
        ("UPDATE inventory_activity SET status = 'OPEN'", "close it first"),
        (
            "UPDATE orders_reservation SET release_state = 'DUE', release_due_at = now(),"
            " released_at = NULL WHERE release_state = 'NONE'",
            "releases are DUE",
        ),
        (
            "UPDATE orders_payment_attempt SET status = 'SUBMIT_UNKNOWN', settled_at = NULL,"
            " next_try_at = now()",
            "payments are not settled",
        ),
        (  # refused by the provider: the money is still here
            "INSERT INTO orders_refund (refund_id, attempt_id, order_id, provider, provider_key,"
            " amount_cents, currency, reason, restock, note, requested_by, status, submitted_at,"
            " submit_count, tries, settled_at, error_class)"
            " SELECT 'rfd_1', attempt_id, order_id, provider, 'rfd_1', amount_cents, currency,"
            " 'SECOND_CAPTURE', true, '', '', 'FAILED', now(), 1, 0, now(), 'REFUSED'"
            " FROM orders_payment_attempt",
            "refunds are not settled",
        ),
        (
            "UPDATE orders_order SET status = 'PAYING', paid_at = NULL WHERE status = 'PAID'",
            "neither paid nor ended",
        ),
        (
            "UPDATE messaging_outbox SET state = 0, sent_at = NULL WHERE tag = 'ORDER_CREATED'",
            "2 messages are not sent: wait",
        ),
    ],
)
def test_what_is_no_rehearsal_at_rest_stays(rehearsal, change, why):
    execute(change)
    before = counts(rehearsal.activity_id)

    with pytest.raises(CommandError, match=why):
        call_command("purge_rehearsal", rehearsal.activity_id, yes=True)

    assert counts(rehearsal.activity_id) == before


def test_reservations_under_way_stop_it(rehearsal):
    execute("UPDATE inventory_activity SET status = 'OPEN'")
    rehearsal.reserve("cid")
    execute("UPDATE inventory_activity SET status = 'CLOSED'")
    with pytest.raises(RehearsalRefused, match="under way"):
        purge_rehearsal(activity_id=rehearsal.activity_id)


def test_it_takes_the_permission_to_delete_sales(rehearsal):
    user = User.objects.create_user("op")
    with pytest.raises(PermissionDenied):
        purge_rehearsal(activity_id=rehearsal.activity_id, user=user)
    with pytest.raises(RehearsalRefused, match="no activity"):
        purge_rehearsal(activity_id=999_999)

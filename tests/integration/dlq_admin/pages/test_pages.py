"""Every page of the console: seen by who may, refused to who may not, harmless to look at."""

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from dlq_admin import permissions
from dlq_admin.models.message import DlqMessage
from dlq_admin.models.ticket import Ticket
from tests.fixtures.desk import add_dead, client_of, dead_body, make_ticket, person

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]

TABS = ("evidence", "domain", "plan", "approvals", "timeline", "invariants")
LISTS = ("", "approvals/", "batches/", "quarantine/", "outbox/", "inbox-rows/", "me/", "search/")


@pytest.mark.parametrize("path", [*LISTS, *(f"tickets/{{}}/?tab={tab}" for tab in TABS)])
def test_a_viewer_sees_the_page_under_a_strict_policy(path: str) -> None:
    ticket = make_ticket()

    answer = client_of(person("viewer")).get(f"/admin/dlq/{path.format(ticket.pk)}")

    assert answer.status_code == 200
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "no-store" in answer.headers["Cache-Control"]
    body = answer.content.decode()
    assert " style=" not in body
    assert "<script>" not in body
    assert " onclick" not in body


@pytest.mark.parametrize("path", [*LISTS, "tickets/1/", "batches/1/", "audit/", "messages/1/"])
def test_who_is_no_staff_is_sent_to_the_log_in(path: str) -> None:
    answer = Client().get(f"/admin/dlq/{path}")

    assert answer.status_code == 302
    assert answer.headers["Location"].startswith("/admin/login/")


@pytest.mark.parametrize("path", [p for p in LISTS if p != "me/"])
def test_staff_without_a_role_is_told_what_is_missing(path: str) -> None:
    answer = client_of(person("")).get(f"/admin/dlq/{path}")

    assert answer.status_code == 403
    assert "dlq_admin.view_console" in answer.content.decode()


def test_the_audit_explorer_is_for_those_who_may_read_it() -> None:
    assert client_of(person("operator")).get("/admin/dlq/audit/").status_code == 403
    assert client_of(person("auditor")).get("/admin/dlq/audit/").status_code == 200


def test_my_permissions_tells_what_each_role_may() -> None:
    page = client_of(person("approver")).get("/admin/dlq/me/").content.decode()

    for codename in (permissions.codename(name) for name in permissions.PERMISSIONS):
        assert codename in page
    assert page.count('class="yes"') == len(permissions.ROLES[permissions.APPROVER])


XSS = "<script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.mark.parametrize("tab", TABS)
def test_what_a_message_carries_is_shown_as_text(tab: str) -> None:
    body = dead_body(producer=XSS, user_id=XSS)
    ticket = make_ticket(bodies=[body], error=XSS, error_class="BAD")
    Ticket.objects.filter(pk=ticket.pk).update(title=XSS)
    client = client_of(person("incident lead"))

    pages = [client.get(f"/admin/dlq/tickets/{ticket.pk}/?tab={tab}"), client.get("/admin/dlq/")]
    message = DlqMessage.objects.get()
    pages.append(client.post(f"/admin/dlq/messages/{message.pk}/reveal/"))
    pages.append(client.get("/admin/dlq/quarantine/"))

    for page in pages:
        assert page.status_code == 200
        text = page.content.decode()
        assert "<script>alert" not in text
        assert "<img src=x" not in text


def test_search_finds_by_the_beginning_of_each_id() -> None:
    ids = {
        name: f"{kind}_00000000000000000000000001"
        for name, kind in (("message_id", "evt"), ("reservation_id", "rsv"), ("order_id", "ord"))
    }
    ticket = make_ticket(bodies=[dead_body(), dead_body(user_id="other", **ids)])
    message = DlqMessage.objects.order_by("pk").first()
    assert message is not None
    client = client_of(person("viewer"))
    asked = [
        f"msg:{message.message_id[:-4]}", f"rsv:{message.reservation_id[:-4]}",
        f"order:{message.order_id[:-4]}", "user:ana@example.com", message.message_id,
        message.reservation_id, message.order_id, message.order_id.replace("ord_", "req_"),
    ]  # fmt: skip

    for query in asked:
        found = client.get("/admin/dlq/search/", {"q": query}).context["found"]
        assert [row.id for row in found.rows] == [message.pk], query

    goes = client.get("/admin/dlq/search/", {"q": f"ticket:{ticket.pk}"})
    assert goes.headers["Location"] == f"/admin/dlq/tickets/{ticket.pk}/"
    numberless = client.get("/admin/dlq/search/", {"q": "ticket:abcdefghij"}).context["found"]
    assert (numberless.rows, numberless.why) == ((), "A ticket has a number.")
    for harmless in ("%", "msg:", "msg:evt", "nothing:x", "\x00", "ticket:999999999999999999999"):
        assert client.get("/admin/dlq/search/", {"q": harmless}).status_code == 200
    assert client.get("/admin/dlq/search/", {"q": "msg:evt_%%%%%"}).context["found"].rows == []


def test_pages_by_key_show_every_row_once() -> None:
    ticket = make_ticket(bodies=[dead_body() for _ in range(120)])
    client = client_of(person("viewer"))
    seen: list[int] = []
    url = "?tab=evidence"
    while url:
        page = client.get(f"/admin/dlq/tickets/{ticket.pk}/{url}").context["page"]
        seen += [row.id for row in page.rows]
        url = page.older

    assert len(seen) == 120
    assert seen == sorted(set(seen), reverse=True)


def _queries(client: Client, path: str) -> int:
    client.get(path)  # what is cached from now on
    with CaptureQueriesContext(
        connection,
    ) as caught:
        assert client.get(path).status_code == 200
    return len(caught)


@pytest.mark.parametrize(
    "path", ["", "tickets/{}/", "tickets/{}/?tab=timeline", "quarantine/",
             "search/?q=user:ana@example.com"]
)  # fmt: skip
def test_a_page_needs_the_same_number_of_statements_for_1_and_100_rows(path: str) -> None:
    client = client_of(person("operator"))
    ticket = make_ticket()
    path = f"/admin/dlq/{path.format(ticket.pk)}"
    one = _queries(client, path)

    for _ in range(99):
        add_dead(ticket, dead_body())
    for number in range(99):
        if path == "/admin/dlq/":
            make_ticket(fingerprint=str(number))

    assert _queries(client, path) == one
    assert one <= 22


def test_evidence_cannot_be_written_in_the_admins_own_lists(admin_client: Client) -> None:
    ticket = make_ticket()
    message = DlqMessage.objects.get()
    for model, pk in (("dlqmessage", message.pk), ("ticket", ticket.pk)):
        base = f"/admin/dlq_admin/{model}"
        assert admin_client.get(f"{base}/").status_code == 200
        assert admin_client.get(f"{base}/add/").status_code == 403
        assert admin_client.post(f"{base}/{pk}/change/", {"status": "CLOSED"}).status_code == 403
        assert admin_client.post(f"{base}/{pk}/delete/", {"post": "yes"}).status_code == 403
        answer = admin_client.post(
            f"{base}/", {"action": "delete_selected", "_selected_action": [pk], "post": "yes"}
        )
        assert answer.status_code in (200, 302)
    assert DlqMessage.objects.filter(pk=message.pk, status="OPEN").exists()
    assert "ana@example.com" not in admin_client.get(
        f"/admin/dlq_admin/dlqmessage/{message.pk}/change/"
    ).content.decode()  # fmt: skip


def test_what_is_not_there_is_not_found() -> None:
    """Unknown tickets, messages and batches are 404, not errors."""
    client = client_of(person("viewer"))
    for path in ("tickets/404/", "messages/404/", "batches/404/", "tickets/1/?message=zz"):
        assert client.get(f"/admin/dlq/{path}").status_code == 404

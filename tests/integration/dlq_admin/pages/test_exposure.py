"""What of a body which person can read, on any page, and when a look is recorded."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from ulid import ULID

from dlq_admin.models.audit import AuditEvent
from dlq_admin.models.message import DlqMessage
from dlq_admin.models.replay import ReplayBatch, ReplayItem
from dlq_admin.models.ticket import Ticket
from messaging.masking import masked_body
from messaging.topology import CG_NOTIFY
from tests.fixtures.desk import client_of, dead_body, make_ticket, person

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]

TABS = ("evidence", "domain", "plan", "approvals", "timeline", "invariants")
GOLDEN = json.loads(
    (Path(__file__).parents[3] / "golden" / "order_event_v1.json").read_text()
)  # fmt: skip
# Beside what the event has today: what a later version may bring, at the top and below.
ADDED = {
    "email": "ann@example.org",
    "coupon": "SECRET-7",
    "contact": {"address": {"street": "Elm Street"}, "tries": 7703},
    "phones": [{"phone": "555-0199"}],
}
PERSONAL = {"user:42@example.org", "ann@example.org", "Elm Street", "555-0199"}
EDITED = {"email": "eve@example.org", "coupon": "SECRET-8"}


def leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from leaves(item)
    elif value not in ("", None):
        yield str(value)


# Everything that the masked body does not show is a secret for whoever sees masked bodies.
MASKED = set(leaves(GOLDEN | ADDED)) - set(
    leaves(json.loads(masked_body(json.dumps(GOLDEN | ADDED).encode())))
)


def readable(values: set[str], page: str) -> set[str]:
    """Return which values stand in a page; not within a longer word, such as a token or a hash."""
    return {
        value for value in values if re.search(rf"(?<!\w){re.escape(value)}(?!\w)", page)
    }  # fmt: skip


def key() -> str:
    return str(ULID())


@pytest.fixture
def ticket(transactional_db: None) -> Ticket:
    """An order's event that is to be edited."""
    found = make_ticket(bodies=[json.dumps(GOLDEN | ADDED).encode()], group=CG_NOTIFY)
    Ticket.objects.filter(pk=found.pk).update(
        status="READY", cause="POISON_FORMAT", disposition="REPLAY_EDITED", analysis="a",
        assignee=person("operator", "olga"),
    )  # fmt: skip
    return found


def reader(role: str, *more: str) -> Client:
    user = person(role, "reader")
    for codename in more:
        user.user_permissions.add(Permission.objects.get(codename=codename))
    return client_of(User.objects.get(pk=user.pk))


def offered(ticket: Ticket, client: Client) -> dict[str, Any]:
    page = client.get(f"/admin/dlq/tickets/{ticket.pk}/?tab=plan")
    fields: dict[str, Any] = json.loads(page.context["edit_form"].initial["fields_json"])
    return fields


def send_edit(client: Client, fields: dict[str, Any]) -> Any:
    message = DlqMessage.objects.get()
    return client.post(
        f"/admin/dlq/messages/{message.pk}/edit/",
        {"submission": key(), "fields_json": json.dumps(fields), "reason": "it is wrong"},
    )


def edit(ticket: Ticket) -> ReplayBatch:
    """Plan an edit, as an operator does who sees no person's data."""
    client = client_of(person("operator", "olga"))
    answer = send_edit(client, offered(ticket, client) | EDITED)
    assert answer.status_code == 303, answer.content.decode()
    return ReplayBatch.objects.get()


def test_the_secrets_of_the_golden_event_are_known() -> None:
    assert {"user:42@example.org", "19998", "EUR"} <= MASKED
    assert PERSONAL < MASKED


@pytest.mark.parametrize(
    ("role", "more", "hidden", "shown"),
    [
        ("", ("view_console",), MASKED | set(EDITED.values()), set()),
        ("viewer", (), MASKED | set(EDITED.values()), set()),
        ("auditor", (), MASKED | set(EDITED.values()), set()),
        ("operator", (), PERSONAL | {EDITED["email"]}, {"19998", "EUR", "SECRET-7", "SECRET-8"}),
        (
            "operator",
            ("view_payload_full",),
            PERSONAL | {EDITED["email"]},
            {"19998", "EUR", "SECRET-7", "SECRET-8"},
        ),
    ],
)
def test_no_page_shows_by_itself_what_its_reader_must_not_see(
    ticket: Ticket, role: str, more: tuple[str, ...], hidden: set[str], shown: set[str]
) -> None:
    batch = edit(ticket)
    client = reader(role, *more)
    paths = [f"tickets/{ticket.pk}/?tab={tab}" for tab in TABS]
    paths += [f"batches/{batch.pk}/", "batches/", "approvals/", ""]

    pages = {path: client.get(f"/admin/dlq/{path}") for path in paths}
    live = client.get(f"/admin/dlq/batches/{batch.pk}/", headers={"X-Console-Part": "1"})

    texts = {path: page.content.decode() for path, page in (pages | {"live": live}).items()}
    assert {page.status_code for page in [*pages.values(), live]} == {200}
    assert {path: readable(hidden, text) for path, text in texts.items()} == {
        path: set() for path in texts
    }
    assert readable(shown, "".join(texts.values())) == shown
    assert not AuditEvent.objects.filter(kind="PAYLOAD_VIEWED").exists()


def test_who_may_not_edit_gets_no_form_and_the_reason(ticket: Ticket) -> None:
    page = reader("viewer").get(f"/admin/dlq/tickets/{ticket.pk}/?tab=plan")

    assert page.context["edit_form"] is None
    assert "needs edit_payload: operator" in page.content.decode()
    assert "fields_json" not in page.content.decode()


def test_a_star_that_stays_is_the_hidden_value(ticket: Ticket) -> None:
    fields = offered(ticket, reader("operator"))
    assert fields["email"] == fields["payload"]["user_id"] == fields["phones"] == "***"
    assert fields["contact"] == {"address": "***", "tries": 7703}
    assert fields["payload"]["amount_cents"] == 19998

    edit(ticket)

    item = ReplayItem.objects.get()
    body = json.loads(bytes(item.body or b""))
    assert body == GOLDEN | ADDED | EDITED
    assert [line["path"] for line in item.edit_diff or ()] == ["coupon", "email"]


@pytest.mark.parametrize(
    "wrong", [{"mail": "***"}, {"coupon": "***"}, {"contact": {"tries": "***"}}, {"new": ["***"]}]
)
def test_a_star_cannot_be_moved(ticket: Ticket, wrong: dict[str, Any]) -> None:
    client = reader("operator")

    answer = send_edit(client, offered(ticket, client) | wrong)

    assert answer.status_code == 409
    assert "*** stands for a value that you do not see" in answer.content.decode()
    assert not ReplayBatch.objects.exists()


def test_a_hidden_value_that_is_locked_stays_locked(ticket: Ticket) -> None:
    client = reader("operator")
    fields = offered(ticket, client)
    fields["payload"]["user_id"] = "somebody"

    answer = send_edit(client, fields)

    assert answer.status_code == 409
    assert "locked: payload.user_id" in answer.content.decode()


def test_a_body_that_is_nested_too_deep_breaks_no_page() -> None:
    deep = b'{"a":' * 700 + b"1" + b"}" * 700
    ticket = make_ticket(bodies=[deep], group=CG_NOTIFY)
    client = reader("operator")

    for tab in TABS:
        page = client.get(f"/admin/dlq/tickets/{ticket.pk}/?tab={tab}")
        assert page.status_code == 200, tab


def test_a_hidden_edit_is_shown_when_asked_for_and_the_look_is_recorded(ticket: Ticket) -> None:
    batch = edit(ticket)
    url = f"/admin/dlq/batches/{batch.pk}/"
    refused = reader("operator").post(f"{url}reveal/")
    lead = person("incident lead")
    client = client_of(lead)

    masked = client.get(url).content.decode()
    assert client.get(f"{url}reveal/").status_code == 405
    assert not AuditEvent.objects.filter(kind="PAYLOAD_VIEWED").exists()
    whole = client.post(f"{url}reveal/").content.decode()

    assert refused.status_code == 403
    assert 'id="reveal"' in masked
    assert "data-live" in masked
    assert "<code>email</code>: *** → ***" in masked
    assert "<code>email</code>: ann@example.org → eve@example.org" in whole
    assert "data-live" not in whole  # the next reading would hide it again
    (event,) = AuditEvent.objects.filter(kind="PAYLOAD_VIEWED")
    assert (event.chain, event.actor) == (ticket.pk, lead.username)
    assert GOLDEN["message_id"] in event.detail
    assert not readable(PERSONAL | set(EDITED.values()), event.detail)


def test_exposure_none_masked_limited_full(client: Client) -> None:
    ticket = make_ticket(bodies=[dead_body(producer="canary", coupon="SECRET-7")])
    url = f"/admin/dlq/tickets/{ticket.pk}/"
    nothing = person("", "bare")
    nothing.user_permissions.add(Permission.objects.get(codename="view_console"))

    bare = client_of(nothing).get(url).content.decode()
    masked = client_of(person("viewer")).get(url).content.decode()
    limited = client_of(person("operator")).get(url).content.decode()

    assert 'id="payload"' not in bare
    assert "SECRET-7" not in masked
    assert "canary" in masked
    assert "SECRET-7" in limited
    assert "ana@example.com" not in bare + masked + limited
    assert not AuditEvent.objects.filter(kind="PAYLOAD_VIEWED").exists()

    message = DlqMessage.objects.get()
    lead = person("incident lead")
    whole = client_of(lead).post(f"/admin/dlq/messages/{message.pk}/reveal/").content.decode()

    assert "ana@example.com" in whole
    (event,) = AuditEvent.objects.filter(kind="PAYLOAD_VIEWED")
    assert (event.chain, event.actor) == (ticket.pk, lead.username)
    assert message.message_id in event.detail
    assert "ana@example.com" not in event.detail


def test_a_look_at_the_whole_body_is_no_get() -> None:
    make_ticket()
    message = DlqMessage.objects.get()
    client = client_of(person("incident lead"))

    assert client.get(f"/admin/dlq/messages/{message.pk}/reveal/").status_code == 405
    assert client_of(person("operator")).post(
        f"/admin/dlq/messages/{message.pk}/reveal/"
    ).status_code == 403  # fmt: skip
    assert not AuditEvent.objects.filter(kind="PAYLOAD_VIEWED").exists()

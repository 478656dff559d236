"""Every act of the console: who may, by POST only, once, and nothing typed is lost."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from ulid import ULID

from dlq_admin import permissions
from dlq_admin.models.audit import AuditEvent
from dlq_admin.models.message import DlqMessage
from dlq_admin.models.replay import ReplayBatch
from dlq_admin.models.submission import Submission
from dlq_admin.models.ticket import Ticket
from dlq_admin.pages import batches, ticket_acts
from tests.fixtures.desk import ROLES, client_of, dead_body, make_ticket, person

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]

EVERYBODY = ("", *ROLES)


def key() -> str:
    return str(ULID())


def has(role: str, permission: str) -> bool:
    return permission in permissions.ROLES.get(f"dlq {role}", frozenset())


def planned(ticket: Ticket, user: User) -> ReplayBatch:
    """Plan by the page, as an operator does; the ticket must be READY."""
    Ticket.objects.filter(pk=ticket.pk).update(
        status="READY", cause="TRANSIENT", disposition="DISCARD", analysis="a", assignee=user
    )
    answer = client_of(user).post(
        f"/admin/dlq/tickets/{ticket.pk}/plan/",
        {"submission": key(), "which": "all", "disposition": "DISCARD", "rate_cap": "10",
         "canary_size": "1", "reason": "nothing is held"},
    )  # fmt: skip
    assert answer.status_code == 303, answer.content.decode()
    return ReplayBatch.objects.get()


def harmless() -> Ticket:
    """A ticket whose messages hold nobody's unit."""
    return make_ticket(bodies=[dead_body()], group="CG_SECKILL_NOTIFY_V1")


def test_every_act_by_every_role_through_a_direct_post() -> None:
    operator = person("operator")
    batch = planned(harmless(), operator)
    ticket = batch.ticket
    addresses = [
        (act, f"/admin/dlq/tickets/{ticket.pk}/{act.name}/") for act in ticket_acts.ACTS.acts
    ] + [(act, f"/admin/dlq/batches/{batch.pk}/{act.name}/") for act in batches.ACTS.acts]
    before = (Ticket.objects.values().get(), ReplayBatch.objects.values().get())
    events = AuditEvent.objects.count()

    seen = {}
    for role in EVERYBODY:
        client = client_of(person(role))
        for act, url in addresses:
            # An empty form changes nothing: who may is told what is missing in it.
            seen[role, url] = client.post(url).status_code
            assert seen[role, url] == (422 if has(role, act.permission) else 403), (role, url)
            assert client.get(url).status_code in (403, 405), (role, url)

    assert set(seen.values()) == {403, 422}
    assert (Ticket.objects.values().get(), ReplayBatch.objects.values().get()) == before
    assert AuditEvent.objects.count() == events


def test_other_posts_by_every_role() -> None:
    ticket = make_ticket()
    message = DlqMessage.objects.get()
    wanted = {
        f"/admin/dlq/messages/{message.pk}/reveal/": permissions.VIEW_PAYLOAD_FULL,
        f"/admin/dlq/messages/{message.pk}/edit/": permissions.EDIT_PAYLOAD,
        f"/admin/dlq/messages/{message.pk}/dry-run/": permissions.PLAN_REPLAY,
        f"/admin/dlq/tickets/{ticket.pk}/check/": permissions.PLAN_REPLAY,
        "/admin/dlq/audit/verify/": permissions.VERIFY_AUDIT,
        "/admin/dlq/audit/export/": permissions.EXPORT_AUDIT,
    }
    for role in EVERYBODY:
        client = client_of(person(role))
        for url, permission in wanted.items():
            answer = client.post(url)
            assert (answer.status_code != 403) == has(role, permission), (role, url)
            assert client.get(url).status_code in (403, 405)


def test_a_missing_permission_shows_as_a_button_that_says_why() -> None:
    batch = planned(harmless(), person("operator"))

    page = client_of(person("viewer")).get(f"/admin/dlq/batches/{batch.pk}/").content.decode()

    assert "needs request_replay: operator" in page
    assert 'action="/admin/dlq/batches' not in page


def test_without_the_token_nothing_is_done() -> None:
    ticket = make_ticket()
    operator = person("operator")

    answer = client_of(operator, csrf=True).post(
        f"/admin/dlq/tickets/{ticket.pk}/take/", {"submission": key()}
    )

    assert answer.status_code == 403
    assert Ticket.objects.get().status == "NEW"


def test_a_form_that_is_sent_twice_acts_once() -> None:
    ticket = make_ticket()
    client = client_of(person("operator"))
    form = {"submission": key()}

    first = client.post(f"/admin/dlq/tickets/{ticket.pk}/take/", form)
    second = client.post(f"/admin/dlq/tickets/{ticket.pk}/take/", form)

    assert (first.status_code, second.status_code) == (303, 303)
    assert Ticket.objects.get().status == "ACKED"
    assert AuditEvent.objects.filter(kind="TICKET_ACKNOWLEDGED").count() == 1


def test_what_was_typed_comes_back_when_it_is_refused() -> None:
    ticket = make_ticket()
    client = client_of(person("operator"))
    client.post(f"/admin/dlq/tickets/{ticket.pk}/take/", {"submission": key()})
    url = f"/admin/dlq/tickets/{ticket.pk}"

    bad = client.post(
        f"{url}/classify/", {"submission": key(), "cause": "NONSENSE", "analysis": "we saw <it>"}
    )
    assert bad.status_code == 422
    assert "we saw &lt;it&gt;" in bad.content.decode()

    form = {"cause": "HANDLER_BUG", "disposition": "REPLAY", "analysis": "ids with @"}
    assert client.post(f"{url}/classify/", {"submission": key(), **form}).status_code == 303
    again = {"submission": key(), "fix_reference": "commit 1234", "fix_build": "7"}
    refused = client.post(f"{url}/ready/", again)
    page = refused.content.decode()
    assert refused.status_code == 409
    assert "only a transient cause is ready without a fix" in page
    assert "commit 1234" in page
    assert Ticket.objects.get().status == "CLASSIFIED"
    # The refused form's key is free again: the corrected form may be sent.
    assert not Submission.objects.filter(key=again["submission"]).exists()


def test_nobody_approves_his_own_plan_and_the_page_says_so() -> None:
    operator = person("operator")
    operator.groups.add(*person("approver").groups.all())
    batch = planned(harmless(), operator)
    client = client_of(operator)
    assert client.post(
        f"/admin/dlq/batches/{batch.pk}/request/", {"submission": key()}
    ).status_code == 303  # fmt: skip

    page = client.get(f"/admin/dlq/batches/{batch.pk}/").content.decode()
    assert "you planned it: another person must approve" in page
    own = client.post(
        f"/admin/dlq/batches/{batch.pk}/approve/",
        {"submission": key(), "plan_hash": batch.plan_hash, "password": "a-long-password"},
    )
    assert own.status_code == 409
    assert ReplayBatch.objects.get().status == "PENDING_APPROVAL"

    # A discard, though planned as a batch, needs who may approve discards.
    other = client_of(person("incident lead", "second"))
    form = {"plan_hash": batch.plan_hash, "comment": "seen"}
    wrong = other.post(
        f"/admin/dlq/batches/{batch.pk}/approve/",
        {"submission": key(), "password": "wrong", **form},
    )
    assert wrong.status_code == 409
    assert "seen" in wrong.content.decode()
    assert 'value="wrong"' not in wrong.content.decode()
    good = other.post(
        f"/admin/dlq/batches/{batch.pk}/approve/",
        {"submission": key(), "password": "a-long-password", **form},
    )
    assert good.status_code == 303
    assert ReplayBatch.objects.get().status == "APPROVED"


def test_the_audit_record_is_proven_and_handed_out() -> None:
    ticket = make_ticket()
    client_of(person("operator")).post(
        f"/admin/dlq/tickets/{ticket.pk}/take/", {"submission": key()}
    )
    operator = User.objects.get(username="operator")
    client = client_of(person("auditor"))
    evil = client_of(person("operator", "=cmd|' /C calc'!A1"))
    evil.post(f"/admin/dlq/tickets/{ticket.pk}/park/",
              {"submission": key(), "minutes": "5", "reason": "=1+1"})  # fmt: skip

    proof = client.post("/admin/dlq/audit/verify/", {"ticket": ticket.pk})
    assert "As it was written." in proof.content.decode()

    lines = body_of(client.post("/admin/dlq/audit/export/", {"form": "jsonl"}))
    events = [json.loads(line) for line in lines.splitlines()]
    assert events[0]["kind"] == "TICKET_ACKNOWLEDGED"
    assert events[0]["actor"] == operator.username
    table = body_of(client.post("/admin/dlq/audit/export/", {"form": "csv"}))
    assert "\r\n" in table
    cells = [cell for line in table.splitlines() for cell in line.split(",")]
    assert not [cell for cell in cells if cell.lstrip('"').startswith(("=", "+", "@"))]
    assert AuditEvent.objects.filter(kind="AUDIT_EXPORTED", actor="auditor").count() == 2
    bad = client.post("/admin/dlq/audit/export/", {"form": "csv", "ticket": "x"})
    assert bad.status_code == 422


def body_of(answer: Any) -> str:
    assert answer.status_code == 200
    return b"".join(answer.streaming_content).decode()


def test_an_edit_offers_only_what_is_free_and_becomes_a_plan_for_two() -> None:
    operator = person("operator")
    body = dead_body(schema_version=2, producer="canary")
    ticket = make_ticket(bodies=[body], group="CG_SECKILL_ORDER_CREATE_PG_V1")
    Ticket.objects.filter(pk=ticket.pk).update(
        status="READY", cause="POISON_FORMAT", disposition="REPLAY_EDITED", analysis="a",
        assignee=operator,
    )  # fmt: skip
    message = DlqMessage.objects.get()
    client = client_of(operator)

    page = client.get(f"/admin/dlq/tickets/{ticket.pk}/?tab=plan")
    form = page.context["edit_form"]
    offered = json.loads(form.initial["fields_json"])
    assert offered["schema_version"] == 2
    assert not {"user_id", "quantity", "reservation_id", "message_id"} & offered.keys()

    def send(fields: Any, submission: str) -> Any:
        text = fields if isinstance(fields, str) else json.dumps(fields)
        return client.post(
            f"/admin/dlq/messages/{message.pk}/edit/",
            {"submission": submission, "fields_json": text, "reason": "tomorrow's schema"},
        )

    assert send("{", key()).status_code == 422
    locked = send({**offered, "quantity": 5}, key())
    assert locked.status_code == 409
    assert "locked: quantity" in locked.content.decode()
    assert not ReplayBatch.objects.exists()


def test_the_links_of_a_page_that_answers_a_post_lead_to_the_page() -> None:
    ticket = harmless()
    operator, auditor = client_of(person("operator")), client_of(person("auditor"))
    message = DlqMessage.objects.get()
    address = f"/admin/dlq/tickets/{ticket.pk}/"

    refused = operator.post(
        f"{address}assign/?tab=evidence", {"submission": key(), "assignee": "nobody"}
    )
    revealed = client_of(person("incident lead")).post(f"/admin/dlq/messages/{message.pk}/reveal/")
    batch = planned(ticket, person("operator"))
    wrong = operator.post(
        f"/admin/dlq/batches/{batch.pk}/abort/", {"submission": key(), "reason": ""}
    )
    proven = auditor.post("/admin/dlq/audit/verify/")

    for answer, status in ((refused, 409), (revealed, 200)):
        assert answer.status_code == status
        assert f'href="{address}?tab=domain&amp;message={message.pk}"' in answer.content.decode()
        assert 'href="?' not in answer.content.decode()
    assert wrong.status_code == 422
    assert f'data-live="/admin/dlq/batches/{batch.pk}/?"' in wrong.content.decode()
    assert 'action="/admin/dlq/audit/"' in proven.content.decode()

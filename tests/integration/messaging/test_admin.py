"""The read-only pages, and what can be done there: pause a group, let it go on."""

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.db import transaction
from django.http import HttpRequest
from django.test import RequestFactory
from django.urls import reverse

from messaging import inbox, quarantine, selectors
from messaging.admin import GroupPauseAdmin
from messaging.broker.base import ReceivedMessage
from messaging.facts import BodyFacts
from messaging.inbox import InboxEntry
from messaging.masking import masked_body
from messaging.models import (
    GroupPause,
    Heartbeat,
    InboxRow,
    OutboxRow,
    QuarantineRow,
    QuarantineSource,
)
from messaging.topology import CG_ORDER_CREATE
from tests.integration.messaging.messages import add, event, evt

pytestmark = pytest.mark.django_db(transaction=True)

MODELS = [InboxRow, OutboxRow, QuarantineRow, GroupPause, Heartbeat]
SECRET = "user:42@example.org"


def request_of(user: User, query: str = "") -> HttpRequest:
    request = RequestFactory().get(f"/?{query}")
    request.user = user
    return request


def poison(body: bytes) -> ReceivedMessage:
    return ReceivedMessage(
        topic="ORDER_CREATE_V1", message_id=evt(), body=body, tag="CREATE_ORDER", keys=("rsv_1",),
        properties={"user": "a\x00b"}, delivery_attempt=1, receipt_handle="", invisible_until=0.0,
        stored_at_ms=0,
    )  # fmt: skip


@pytest.mark.parametrize("model", MODELS)
def test_nobody_adds_changes_or_deletes_rows_by_hand(model: type) -> None:
    page = admin.site._registry[model]
    request = request_of(User.objects.create_superuser("root"))

    assert page.has_view_permission(request)
    assert page.has_add_permission(request) == (model is GroupPause)  # by the service
    assert not page.has_change_permission(request)
    assert not page.has_delete_permission(request)
    assert "delete_selected" not in page.get_actions(request)


@pytest.mark.parametrize("model", MODELS)
def test_every_list_can_be_read_and_searched(model: type) -> None:
    with transaction.atomic():
        inbox.claim(group="G", entries=[InboxEntry(message_id=evt(), outcome="APPLIED")])
    add([event()])
    quarantine.store([quarantine.entry_of(poison(b"{}"), group="G", reason="BAD")])
    page = admin.site._registry[model]
    request = request_of(
        User.objects.create_superuser("root"), "q=evt_1" if page.search_fields else ""
    )

    changelist = page.get_changelist_instance(request)

    assert changelist.result_count == 0
    changelist = page.get_changelist_instance(request_of(request.user))
    assert changelist.result_count == (1 if model in MODELS[:3] else 0)


def test_bodies_are_shown_without_personal_data() -> None:
    body = (
        b'{"order_id": "ord_1", "user_id": "' + SECRET.encode() + b'", "quantity": 1,'
        b' "payload": {"note": "my address", "status": "PAID"}, "list": ["private"]}'
    )

    shown = masked_body(body)

    assert '"ord_1"' in shown
    assert '"PAID"' in shown
    for secret in (SECRET, "my address", "private"):
        assert secret not in shown
    assert masked_body(b"\xff secret") == "8 bytes that are no JSON"


def test_only_the_permission_lets_a_group_go_on() -> None:
    GroupPause.objects.create(consumer_group="G", reason="x", paused_by="breaker:w")
    page = GroupPauseAdmin(GroupPause, admin.site)
    user = User.objects.create_user("olga", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_grouppause"))

    assert "let_go_on" not in page.get_actions(request_of(User.objects.get(pk=user.pk)))
    user.user_permissions.add(Permission.objects.get(codename="resume_group"))
    assert "let_go_on" in page.get_actions(request_of(User.objects.get(pk=user.pk)))


def test_who_may_resume_may_pause_and_says_why(client) -> None:
    url, wish = reverse("admin:messaging_grouppause_add"), {"consumer_group": CG_ORDER_CREATE}
    user = User.objects.create_user("olga", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="add_grouppause"))
    client.force_login(user)
    assert client.post(url, wish | {"reason": "maintenance"}).status_code == 403
    user.user_permissions.add(Permission.objects.get(codename="resume_group"))

    assert b"This field is required" in client.post(url, wish).content
    unknown = client.post(url, {"consumer_group": "CG_TYPO", "reason": "x"})
    assert b"Select a valid choice" in unknown.content
    assert not GroupPause.objects.exists()
    assert client.post(url, wish | {"reason": "maintenance"}).status_code == 302
    assert [(p.group, p.reason, p.paused_by) for p in selectors.paused_groups()] == [
        (CG_ORDER_CREATE, "maintenance", "olga")
    ]
    assert b"already exists" in client.post(url, wish | {"reason": "again"}).content


def test_storing_the_same_message_again_is_one_more_occurrence_and_opens_it_again() -> None:
    message = poison(b'{"quantity": 1}')
    entry = quarantine.entry_of(message, group="G", reason="BAD", error="first")

    quarantine.store([entry, entry])
    with transaction.atomic():
        assert quarantine.held(group="G", message_ids=[message.message_id, "evt_x"], lock=True) == {
            message.message_id
        }
        assert quarantine.seen_again(group="G", message_ids=[message.message_id]) == 1
        assert quarantine.resolve(group="G", message_ids=[message.message_id], resolution="X") == 1
        assert quarantine.resolve(group="G", message_ids=[message.message_id], resolution="Y") == 0
    assert quarantine.held(group="G", message_ids=[message.message_id]) == set()
    resolved = QuarantineRow.objects.get()
    assert (resolved.status, resolved.resolution, resolved.occurrences) == ("RESOLVED", "X", 2)

    quarantine.store([entry])
    row = QuarantineRow.objects.get()
    assert (row.status, row.resolved_at, row.occurrences) == ("OPEN", None, 3)


@pytest.mark.parametrize(
    ("message_id", "tag", "body"),
    [
        ("m" * 500, "t" * 500, b"\x00\xff" * 1000),
        ("id\x00with nul", "\x00", b"{" * 100_000),
        ("", "", b""),
        ("evt_1", "x", b"x" * 4_000_000),
    ],
)
def test_nothing_in_a_message_can_keep_it_out_of_quarantine(
    message_id: str, tag: str, body: bytes
) -> None:
    """Else it would come back for ever: the row must fit whatever the message holds."""
    message = ReceivedMessage(
        topic="T" * 300, message_id=message_id, body=body, tag=tag, keys=("k\x00", "rsv_bad"),
        properties={"p\x00": "v\x00"}, delivery_attempt=99, receipt_handle="", invisible_until=0.0,
        stored_at_ms=0,
    )  # fmt: skip

    for _ in range(2):
        quarantine.store(
            [quarantine.entry_of(message, group="G", reason="R" * 200, error="E\x00" * 5000)]
        )

    row = QuarantineRow.objects.get()
    assert bytes(row.body) == body
    assert row.occurrences == 2


def test_held_reservations_are_listed_once_each() -> None:
    facts = BodyFacts(reservation_id="rsv_1", activity_id=7, sku_id=8, user_id="u", quantity=2)
    for body in (b"1", b"2"):
        quarantine.store(
            [
                quarantine.entry_of(
                    poison(body), group="G", reason="BAD", facts=facts, source=QuarantineSource.DLQ
                )
            ]
        )
    quarantine.store([quarantine.entry_of(poison(b"3"), group="G", reason="BAD")])

    [held] = quarantine.held_reservations(group="G", activity_id=7)

    assert (held.reservation_id, held.sku_id, held.user_id, held.quantity) == ("rsv_1", 8, "u", 2)
    assert quarantine.held_reservations(group="G", activity_id=8) == []
    assert quarantine.held_reservations(group="OTHER", activity_id=7) == []

"""Operators' pages: the whole story of each kind of purchase, read only, for those who may."""

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from inventory.errors import GateUnavailable
from orders import notifications
from orders.story import gate_part
from orders.story.tell import story_of
from tests.fixtures.purchases import purchases
from tests.fixtures.sql import execute, rows

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]

LISTS = (
    "order", "reservationrow", "paymentattempt", "refund", "webhookevent", "effectrow",
    "notification", "orderqueryrow",
)  # fmt: skip


@pytest.fixture
def made():
    return purchases()


@pytest.fixture
def admin_client():
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


def staff(*codenames):
    user = User.objects.create_user("op", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client = Client()
    client.force_login(user)
    return client


def page(client, any_id):
    response = client.get(reverse("admin:orders_story", args=[any_id]))
    return response.status_code, response.content.decode()


def test_the_story_of_a_paid_order_names_every_id_step_message_and_effect(made, admin_client):
    status, text = page(admin_client, made.paid.order_id)
    r = made.paid

    assert status == 200
    events = [event_id for (event_id,) in rows(
        "SELECT event_id FROM messaging_outbox WHERE keys LIKE %s", f"%{r.reservation_id}%"
    )]  # fmt: skip
    assert len(events) == 3  # ORDER_CREATED, CANCEL_IF_UNPAID, ORDER_PAID
    ids = [r.reservation_id, r.order_id, r.request_id, r.message_id, r.traceparent, *events]
    for wanted in [*ids, "pay_00000000000000000000000001", "prov-77", "hook-9"]:
        assert wanted in text, wanted
    for step in (
        "Reserved at the gate", "Reservation ordered", "Order created", "Order paid",
        "Attempt recorded", "Attempt succeeded", "Refund due", "payment.captured: applied",
        "ORDER_CREATED published", "CANCEL_IF_UNPAID due", "Sale booked",
        "CG_SECKILL_ORDER_CREATE_PG_V1: CREATED", "CG_SECKILL_SETTLEMENT_V1: APPLIED",
        "ORDER_PAID: pending",
    ):  # fmt: skip
        assert step in text, step
    for title in (
        "Messages", "Inbox", "Stock ledger", "Payment attempts", "Refunds", "Webhooks", "Effects",
        "Mails", "Read model", "Bodies", "CONFIRMED", "ORDERED · PAID",
    ):  # fmt: skip
        assert title in text, title
    assert made.canceled.order_id not in text


def test_every_id_of_a_purchase_leads_to_its_story(made):
    r = made.paid
    ((event_id,),) = rows(
        "SELECT event_id FROM messaging_outbox WHERE tag = 'ORDER_PAID' AND keys LIKE %s",
        f"%{r.order_id}%",
    )
    ids = [
        r.reservation_id, r.order_id, r.request_id, r.message_id, event_id,
        "pay_00000000000000000000000001", "prov-77", "ref_00000000000000000000000001", "ref-key-1",
    ]  # fmt: skip
    assert {story_of(any_id).reservation_id for any_id in ids} == {r.reservation_id}


def test_the_timeline_is_in_order_and_tells_the_end_of_a_cancelled_order(made):
    story = story_of(made.canceled.reservation_id)
    times = [entry.at for entry in story.timeline]
    titles = [entry.title for entry in story.timeline]

    assert times == sorted(times)
    assert story.headline == "CANCELED · CANCELED"
    for earlier, later in (
        ("Reserved at the gate", "Order created"),
        ("Order created", "Order cancelled"),
        ("Release due", "Released at the gate"),
    ):
        assert titles.index(earlier) < titles.index(later)
    assert ("status", "RELEASED") in story.gate
    assert ("buyers names", "") in story.gate


def test_a_rejected_a_pending_and_a_held_purchase_say_what_they_are(made):
    rejected, pending, held = (
        story_of(r.reservation_id) for r in (made.rejected, made.pending, made.held)
    )
    assert rejected.headline == "EXPIRED · RESERVATION_EXPIRED"
    assert pending.headline == "no outcome yet · RESERVED · MQ_PENDING"
    assert [e.title for e in pending.timeline] == [
        "Reserved at the gate", "The scanner sends it again",
    ]  # fmt: skip
    assert held.headline == "DELAYED · an open ticket holds it"
    assert "CG_SECKILL_ORDER_CREATE_PG_V1: BUG" in [e.title for e in held.timeline]


def test_without_redis_the_story_says_so_and_tells_the_rest(made, monkeypatch):
    class Away:
        def run(self, call):
            raise GateUnavailable("time-out")

    monkeypatch.setattr(gate_part, "gate", Away)
    story = story_of(made.paid.order_id)

    assert story.notes == ["Redis does not answer: time-out"]
    assert story.headline == "ORDERED · PAID"
    assert "Reserved (by the time in its id)" in [e.title for e in story.timeline]


def test_personal_data_in_bodies_is_masked(made):
    texts = [body.text for body in story_of(made.paid.order_id).bodies]
    assert len(texts) == 3
    assert all('"user_id": "***' in text and '"ann"' not in text for text in texts)


@pytest.mark.parametrize("any_id", ["rsv_01ARZ3NDEKTSV4RRFFQ69G5FAV", "x", "pay_none", "'; --"])
def test_an_unknown_id_is_a_404_with_a_search_box(admin_client, any_id):
    status, text = page(admin_client, any_id)
    assert status == 404
    assert "No store knows anything" in text


def test_the_search_box_leads_to_the_story(made, admin_client):
    response = admin_client.get(
        reverse("admin:orders_story_search"), {"id": f" {made.paid.order_id} "}
    )
    assert response.url == reverse("admin:orders_story", args=[made.paid.order_id])


def test_a_story_costs_a_bounded_number_of_statements(made, django_assert_max_num_queries):
    with django_assert_max_num_queries(25):
        story_of(made.paid.order_id)


def test_each_list_links_to_the_story_and_changes_nothing(made, admin_client):
    for name in LISTS:
        url = reverse(f"admin:orders_{name}_changelist")
        response = admin_client.get(url)

        assert response.status_code == 200
        assert "/story/" in response.content.decode(), name
        assert admin_client.get(reverse(f"admin:orders_{name}_add")).status_code == 403
        table = response.context["cl"].model._meta.db_table
        count = f"SELECT count(*) FROM {table}"  # noqa: S608
        before = rows(count)
        admin_client.post(url, {"action": "delete_selected", "_selected_action": ["1"]})
        assert rows(count) == before != [(0,)]
        assert admin_client.get(url, {"q": "nothing-like-it"}).status_code == 200


@pytest.mark.parametrize("url", ["admin:orders_story_search", "admin:orders_csv"])
def test_who_may_not_see_orders_gets_nothing(url):
    assert Client().get(reverse(url)).status_code == 302  # to the log-in
    assert staff("view_activity").get(reverse(url)).status_code == 403


def test_who_may_not_see_payments_sees_the_story_without_money(made):
    client = staff("view_order", "view_reservationrow")
    status, text = page(client, made.paid.order_id)
    assert status == 200
    assert "prov-77" not in text
    assert "Order paid" in text


def test_pages_take_no_posts(made, admin_client):
    assert admin_client.post(reverse("admin:orders_story", args=["x"])).status_code == 405
    assert admin_client.post(reverse("admin:orders_csv")).status_code == 405


def test_an_unknown_mail_is_sent_again_by_who_may(made, admin_client, settings):
    execute("UPDATE orders_notification SET status = 'UNKNOWN', sending_at = now()")
    ((number,),) = rows("SELECT id FROM orders_notification")
    url = reverse("admin:orders_notification_changelist")
    chosen = {"action": "send_again", "_selected_action": [number]}

    staff("view_notification").post(url, chosen)
    assert rows("SELECT status FROM orders_notification") == [("UNKNOWN",)]
    admin_client.post(url, chosen)
    assert rows("SELECT status FROM orders_notification") == [("PENDING",)]
    settings.SECKILL_MAIL, settings.SECKILL_MAIL_DOMAIN = True, "x.example"
    assert notifications.send_due().sent == 1

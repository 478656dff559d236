"""The REST API: tokens, sales, reservations, orders; only what is the caller's own."""

import time
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.test import override_settings
from rest_framework.test import APIClient

from seckill.admission.tokens import issue, verifier
from tests.fixtures.sales import Sale, open_sale

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]


def client(user_id: str = "") -> APIClient:
    made = APIClient()
    if user_id:
        token = issue(user_id, use="access", lifetime_s=60)
        made.credentials(HTTP_AUTHORIZATION=f"Bearer {token}")
    return made


def problem(response: Any, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/problem+json"
    document: dict[str, Any] = response.json()
    assert document["code"] == code
    assert document["status"] == status
    return document


def ordered(sale: Sale, user: str) -> Any:
    reservation = sale.reserve(user)
    sale.deliver(reservation)
    return reservation


def test_password_gives_tokens_and_refresh_renews_them() -> None:
    get_user_model().objects.create_user("bea", password="a long secret")
    response = client().post(
        "/api/v1/auth/token", {"username": "bea", "password": "a long secret"}, format="json"
    )
    assert response.status_code == 200
    assert verifier().verify(response.json()["access"].encode()) == "bea"

    renewed = client().post(
        "/api/v1/auth/refresh", {"refresh": response.json()["refresh"]}, format="json"
    )
    assert renewed.status_code == 200
    assert verifier().verify(renewed.json()["access"].encode()) == "bea"
    access_is_no_refresh = client().post(
        "/api/v1/auth/refresh", {"refresh": response.json()["access"]}, format="json"
    )
    problem(access_is_no_refresh, 401, "UNAUTHENTICATED")


@override_settings(PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"])
def test_bad_credentials_are_refused_and_slowed_down() -> None:
    name = f"eve{time.monotonic_ns()}"
    body = {"username": name, "password": "x"}
    codes = [
        client().post("/api/v1/auth/token", body, format="json").status_code for _ in range(12)
    ]
    assert codes[:10] == [401] * 10
    assert codes[-1] == 429


@override_settings(PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"])
def test_spellings_of_a_name_are_one_account() -> None:
    name = str(time.monotonic_ns())
    spelled: list[object] = [int(name), *(" " * n + name + "\t" * n for n in range(10))]
    bodies = [{"username": one, "password": "x"} for one in spelled]
    codes = [
        client().post("/api/v1/auth/token", body, format="json").status_code for body in bodies
    ]
    assert codes == [401] * 10 + [429]
    other_case = {"username": f"E{name}", "password": "x"}
    assert client().post("/api/v1/auth/token", other_case, format="json").status_code == 401


def test_only_what_is_checked_counts_as_a_guess() -> None:
    name = f"eve{time.monotonic_ns()}"
    get_user_model().objects.create_user(name, password="a long secret")
    for body in ({"username": name}, {"username": name, "password": 7 * [""]}):
        for _ in range(10):
            problem(client().post("/api/v1/auth/token", body, format="json"), 400, "BAD_REQUEST")
    right = {"username": name, "password": "a long secret"}
    assert client().post("/api/v1/auth/token", right, format="json").status_code == 200


def test_demo_login_only_where_it_is_on() -> None:
    with override_settings(SECKILL_DEMO_LOGIN=False):
        problem(
            client().post("/api/v1/auth/token", {"user_id": "u1"}, format="json"), 403, "FORBIDDEN"
        )
    with override_settings(SECKILL_DEMO_LOGIN=True):
        response = client().post("/api/v1/auth/token", {"user_id": "u1"}, format="json")
    assert verifier().verify(response.json()["access"].encode()) == "u1"


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'"x"',
        b'{"user_id": 7, "username": []}',
        b"\xff",
        pytest.param(b"[" * 3_000, id="deep"),
        pytest.param(b'{"username": ' * 3_000, id="deep object"),
    ],
)
def test_malformed_bodies_are_400(body: bytes) -> None:
    response = client().post("/api/v1/auth/token", body, content_type="application/json")
    problem(response, 400, "BAD_REQUEST")


def test_other_content_and_method_are_refused() -> None:
    problem(client().post("/api/v1/auth/token", b"x", content_type="text/plain"), 415,
            "UNSUPPORTED_MEDIA_TYPE")  # fmt: skip
    problem(client().get("/api/v1/auth/token"), 405, "METHOD_NOT_ALLOWED")


def test_activities_show_time_and_coarse_stock() -> None:
    sale = open_sale(units=1)
    listed = client().get("/api/v1/activities")
    assert [a["activity_id"] for a in listed.json()] == [sale.activity_id]

    shown = client().get(f"/api/v1/activities/{sale.activity_id}").json()

    assert shown["status"] == "OPEN"
    assert shown["server_time"].endswith("Z")
    assert [sku["stock"] for sku in shown["skus"]] == ["few"]
    assert "available" not in shown["skus"][0]
    problem(client().get("/api/v1/activities/999999"), 404, "NOT_FOUND")
    problem(client().get("/api/v1/activities/x"), 404, "NOT_FOUND")
    problem(client().get(f"/api/v1/activities/{'9' * 40}"), 404, "NOT_FOUND")


def test_reservation_is_told_from_the_gate_then_from_postgresql() -> None:
    sale = open_sale()
    reservation = sale.reserve("alice")
    address = f"/api/v1/activities/{sale.activity_id}/reservations/{reservation.reservation_id}"
    queued = client("alice").get(address).json()
    sale.deliver(reservation)
    made = client("alice").get(address).json()
    mine = client("alice").get(
        f"/api/v1/activities/{sale.activity_id}/skus/{sale.sku_id}/reservation"
    )

    assert queued["status"] == "QUEUED"
    assert (made["status"], made["order_status"]) == ("ORDERED", "CREATED")
    assert made["version"] > queued["version"]
    assert mine.json() == made
    problem(client("bob").get(address), 404, "NOT_FOUND")
    problem(client().get(address), 401, "UNAUTHENTICATED")
    problem(
        client("bob").get(f"/api/v1/activities/{sale.activity_id}/skus/{sale.sku_id}/reservation"),
        404,
        "NOT_FOUND",
    )


def test_orders_are_listed_by_pages_and_only_the_callers() -> None:
    sale = open_sale(skus=3)
    for sku in sale.sku_ids:
        reservation = sale.reserve("alice", sku_id=sku)
        sale.deliver(reservation)
    ordered(sale, "bob")

    first = client("alice").get("/api/v1/orders?limit=2").json()
    second = client("alice").get(f"/api/v1/orders?limit=2&cursor={first['next_cursor']}").json()

    ids = [order["order_id"] for order in first["orders"] + second["orders"]]
    assert len(set(ids)) == 3
    assert ids == sorted(ids, reverse=True)
    assert second["next_cursor"] == ""
    assert client("nobody").get("/api/v1/orders").json() == {"orders": [], "next_cursor": ""}
    for query in ("limit=0", "limit=101", "limit=x", "cursor=';--", "cursor=ord_"):
        problem(client("alice").get(f"/api/v1/orders?{query}"), 400, "BAD_REQUEST")


def test_cancel_gives_units_back_once_and_only_to_its_owner() -> None:
    sale = open_sale(units=5)
    reservation = ordered(sale, "alice")
    address = f"/api/v1/orders/{reservation.order_id}"
    problem(client("bob").post(f"{address}/cancel"), 404, "NOT_FOUND")
    assert sale.order_status(reservation) == "CREATED"

    response = client("alice").post(f"{address}/cancel")

    assert response.json()["status"] == "CANCELED"
    assert sale.available() == 5
    again = problem(client("alice").post(f"{address}/cancel"), 409, "ORDER_STATE_CONFLICT")
    assert again["order_status"] == "CANCELED"
    assert sale.available() == 5
    assert client("alice").get(address).json()["cancel_reason"] == "USER"
    problem(client("bob").get(address), 404, "NOT_FOUND")
    problem(client("alice").get("/api/v1/orders/ord_x"), 404, "NOT_FOUND")


def test_health_and_readiness(provisioned: str) -> None:
    ready = client().get("/readyz")
    assert ready.status_code == 200, ready.content
    assert set(ready.json()["checks"].values()) == {"ok"}
    with override_settings(ROCKETMQ_ENDPOINTS="127.0.0.1:1"):
        away = client().get("/readyz")
    assert away.status_code == 503
    assert "broker" in str(away.json()["checks"])
    one_of_two = f"127.0.0.1:1;{settings.ROCKETMQ_ENDPOINTS}"
    with override_settings(ROCKETMQ_ENDPOINTS=one_of_two):
        degraded = client().get("/readyz")
    assert (degraded.status_code, degraded.json()["degraded"]) == (200, True)
    assert "127.0.0.1:1 takes no connection" in degraded.json()["checks"]["broker"]
    assert b"seckill_admission" in client().get("/metrics").content


def test_unknown_addresses_are_problems() -> None:
    problem(client().get("/api/v1/nothing"), 404, "NOT_FOUND")

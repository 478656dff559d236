"""Guesses at a password: the API, the pages' log-in and the admin's share one count."""

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client
from redis.exceptions import ConnectionError as RedisGone
from rest_framework.test import APIClient

from seckill.password_limit import TOO_MANY, may_guess

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_client")]
RIGHT = "a long secret"


@pytest.fixture(autouse=True)
def _settings(settings: Any, tmp_path: Any) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    settings.SECKILL_DEMO_LOGIN = False
    settings.STATIC_ROOT = tmp_path  # whitenoise warns when it is missing


@pytest.fixture
def name() -> str:
    """A new operator's name; every test has its own, since counts outlive a test."""
    made = f"eve{time.monotonic_ns()}"
    User.objects.create_superuser(made, password=RIGHT)
    return made


def page(name: str, password: str) -> Any:
    return Client().post("/login/", {"username": name, "password": password})


def admin(name: str, password: str) -> Any:
    return Client().post("/admin/login/", {"username": name, "password": password})


def api(name: str, password: str) -> Any:
    body = {"username": name, "password": password}
    return APIClient().post("/api/v1/auth/token", body, format="json")


def test_the_pages_log_in_is_limited(name: str) -> None:
    wrong = [page(name, "x") for _ in range(10)]
    assert {(one.status_code, TOO_MANY in one.content.decode()) for one in wrong} == {(422, False)}

    refused = page(name, RIGHT)  # the right password too, or a guesser would learn it

    assert (refused.status_code, refused["Retry-After"]) == (429, "60")
    assert TOO_MANY in refused.content.decode()
    assert "buyer" not in refused.client.session


def test_the_admins_log_in_is_limited(name: str) -> None:
    for _ in range(10):
        assert "Please enter the correct" in admin(name, "x").content.decode()
    refused = admin(name, RIGHT)
    assert TOO_MANY in refused.content.decode()
    assert "_auth_user_id" not in refused.client.session


def test_the_right_password_opens_the_pages_and_the_admin(name: str) -> None:
    assert page(name, RIGHT).status_code == 302
    assert admin(name, RIGHT).status_code == 302


def test_all_ways_in_count_together(name: str) -> None:
    full_width = name.replace("e", "\uff45")  # the admin's form makes it an `e`
    for _ in range(4):
        assert api(name, "x").status_code == 401
    for _ in range(3):
        assert page(name, "x").status_code == 422
        assert TOO_MANY not in admin(full_width, "x").content.decode()
    assert api(name, RIGHT).status_code == 429
    assert page(name, RIGHT).status_code == 429
    assert TOO_MANY in admin(name, RIGHT).content.decode()


def test_guesses_at_the_same_time_all_count(name: str) -> None:
    together = Barrier(30)

    def guess(_: int) -> bool:
        together.wait(10)
        return may_guess(name)

    with ThreadPoolExecutor(30) as pool:
        assert sum(pool.map(guess, range(30))) == 10


def test_without_a_cache_operators_still_log_in(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*args: object, **kwargs: object) -> None:
        raise RedisGone("down")

    monkeypatch.setattr(cache, "add", gone)
    assert may_guess(name)

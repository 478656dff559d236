"""Who may watch, what a watcher gets, and that any number of them costs the same."""

import asyncio
import json
from collections.abc import Callable
from http.cookies import SimpleCookie
from typing import Any

import pytest
import redis
from django.conf import settings
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.test.utils import CaptureQueriesContext

from inventory import keys
from inventory.gate import gate
from seckill.monitor import store, stream
from seckill.monitor.viewers import may_watch
from seckill.web import WebProcess
from tests.fixtures.sales import Sale
from tests.fixtures.sql import execute
from tests.fixtures.web import AsgiClient, StartWeb, eventually, in_thread

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]

PAGES = ["/admin/monitor/", "/admin/monitor/data/", "/admin/monitor/workers/"]
SNAPSHOT = b'{"at_ms":1,"sales":[]}'


def staff(*permissions: str) -> User:
    user = User.objects.create_user(f"user-{len(permissions)}", is_staff=True)
    for name in permissions:
        app, codename = name.split(".")
        user.user_permissions.add(
            Permission.objects.get(content_type__app_label=app, codename=codename)
        )
    return user


def logged_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def cookie_of(client: Client) -> str:
    found: SimpleCookie = client.cookies
    return f"{settings.SESSION_COOKIE_NAME}={found[settings.SESSION_COOKIE_NAME].value}"


def publish() -> None:
    gate().run(store.publish(snapshot=SNAPSHOT, point=b'{"t":1}'))


# --- pages ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("path", PAGES)
def test_pages_are_for_staff_with_the_permission_and_only_read(path: str) -> None:
    assert Client().get(path).status_code == 302, "to the log-in"
    assert logged_in(staff()).get(path).status_code == 403
    allowed = logged_in(staff("inventory.view_activity", "messaging.view_heartbeat"))
    answer = allowed.get(path)
    assert answer.status_code == 200
    assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
    assert "no-store" in answer.headers["Cache-Control"]
    for method in (allowed.post, allowed.put, allowed.delete):
        assert method(path).status_code == 405


def test_the_data_is_what_stands_in_redis_and_costs_no_statement_of_its_own(
    django_assert_num_queries: Callable[..., Any],
) -> None:
    client = logged_in(User.objects.create_superuser("root"))
    client.get("/admin/monitor/data/")  # the session is cached from here on
    assert client.get("/admin/monitor/data/").json()["snapshot"] is None
    publish()
    with django_assert_num_queries(1):  # who is asking
        body = client.get("/admin/monitor/data/").json()
    assert body["snapshot"] == json.loads(SNAPSHOT)
    assert body["points"] == [{"t": 1}]
    assert body["limits"]["lag_s"] == [1.0, 2.5]


def test_the_workers_page_tells_the_living_and_the_silent() -> None:
    for name, age_s, state in (("a", 1, "RUNNING"), ("b", 60, "RUNNING"), ("c", 9_000, "RUNNING")):
        execute(
            'INSERT INTO messaging_heartbeat (worker_id, role, "group", build, version, started_at,'
            " beat_at, state, detail) VALUES (%s, 'sender', '', 1, '', now(),"
            " now() - %s * interval '1 second', %s, '{\"lane\": 2}')",
            f"box:7:sender/{name}",
            age_s,
            state,
        )
    page = logged_in(User.objects.create_superuser("root")).get("/admin/monitor/workers/")
    text = page.content.decode()
    assert "2 loops, ✕ 1 fell silent" in text
    assert text.count('data-tone="bad">silent') == 1
    assert "lane 2" in text
    assert "box:7:sender" in text


def test_the_first_page_of_the_admin_links_what_one_may_see() -> None:
    assert "/admin/monitor/" not in logged_in(staff()).get("/admin/").content.decode()
    page = logged_in(staff("inventory.view_activity")).get("/admin/").content.decode()
    assert 'href="/admin/monitor/"' in page
    assert 'href="/admin/monitor/workers/"' not in page


# --- stream --------------------------------------------------------------------------------------
class Viewer:
    """A browser's stream, as far as it has come."""

    def __init__(self, web: AsgiClient, cookie: str) -> None:
        self.sent: list[dict[str, Any]] = []
        self._gone = asyncio.Event()
        scope = web.scope("GET", stream.PATH, {"cookie": cookie})
        self.task = asyncio.create_task(web.app(scope, self._receive, self._send))  # type: ignore[arg-type]

    async def _receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"]) if self.sent else 0

    @property
    def events(self) -> list[bytes]:
        return [message["body"] for message in self.sent[1:] if message["body"]]

    async def leave(self) -> None:
        self._gone.set()
        await self.task


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream.Feed.__init__, "__kwdefaults__", {"every_s": 0.05})


async def test_strangers_get_no_stream(start_web: StartWeb) -> None:
    web = await start_web()
    nobody = await in_thread(lambda: cookie_of(logged_in(staff())))
    for cookie in ("", f"{settings.SESSION_COOKIE_NAME}=made-up", nobody):
        reply = await web.request("GET", stream.PATH, headers={"cookie": cookie})
        assert (reply.status, reply.code) == (401, "UNAUTHENTICATED")
    assert (await web.request("POST", stream.PATH)).status == 405


@pytest.mark.usefixtures("quick")
async def test_a_hundred_viewers_cost_as_many_reads_as_one(
    start_web: StartWeb, monkeypatch: pytest.MonkeyPatch
) -> None:
    web = await start_web()
    await in_thread(publish)
    cookie = await in_thread(
        lambda: cookie_of(logged_in(staff("inventory.view_activity", "orders.view_order")))
    )
    reads = 0
    real = store.read

    def counted() -> Any:
        nonlocal reads
        reads += 1
        return real()

    monkeypatch.setattr(store, "read", counted)
    viewers = [Viewer(web, cookie) for _ in range(100)]
    await eventually(lambda: all(len(viewer.events) >= 1 for viewer in viewers), timeout_s=15)

    sessions_asked = 0

    def asked(session_key: str) -> bool:
        nonlocal sessions_asked
        sessions_asked += 1
        return may_watch(session_key)

    monkeypatch.setattr(stream, "may_watch", asked)
    before, at = reads, len(viewers[0].events)
    await eventually(lambda: len(viewers[0].events) >= at + 5)
    # One read a tick, whoever watches; the database is not asked at all.
    assert reads - before <= len(viewers[0].events) - at + 1
    assert sessions_asked == 0
    assert {viewer.status for viewer in viewers} == {200}
    newest = {viewer.events[-1] for viewer in viewers}
    assert all(event.startswith(b"event: snapshot\ndata: ") for event in newest)
    assert json.loads(viewers[7].events[0].split(b"data: ")[1])["snapshot"] == json.loads(SNAPSHOT)

    for viewer in viewers:
        await viewer.leave()
    seen = reads
    await asyncio.sleep(0.3)
    assert reads <= seen + 1, "somebody reads although nobody watches"


@pytest.mark.usefixtures("quick")
async def test_silence_is_told_and_a_session_that_ends_ends_its_stream(
    start_web: StartWeb, redis_client: redis.Redis
) -> None:
    web = await start_web()
    process: WebProcess = web.app  # type: ignore[assignment]
    assert process._running is not None
    process._running.monitor._ask_again_s = 0.1
    cookie = await in_thread(lambda: cookie_of(logged_in(User.objects.create_superuser("root"))))
    viewer = Viewer(web, cookie)
    await eventually(lambda: viewer.events)
    assert viewer.events[0] == b'event: silent\ndata: {"why": "NOBODY_SAMPLES"}\n\n'

    await in_thread(lambda: User.objects.update(is_active=False))
    await asyncio.wait_for(viewer.task, 10)
    assert viewer.sent[-1]["more_body"] is False


# --- what admission counts -----------------------------------------------------------------------
async def test_answers_are_counted_for_the_sale_that_was_asked_for_and_for_no_other(
    start_web: StartWeb, sale: Sale, redis_client: redis.Redis
) -> None:
    web = await start_web()
    await web.buy(sale, "ann")
    await web.buy(sale, "ann")
    await web.buy(sale, "bob", quantity=0)
    await web.request("POST", "/api/v1/activities/999999/skus/1/reservations")

    wanted = {"QUEUED": "1", "ALREADY_RESERVED": "1", "BAD_BODY": "1"}
    await eventually(
        lambda: redis_client.hgetall(keys.answers(sale.activity_id)) == wanted, timeout_s=10
    )
    assert not redis_client.exists(keys.answers(999_999)), "made-up sales leave keys behind"
    assert redis_client.ttl(keys.answers(sale.activity_id)) > 86_400


def test_looking_at_the_session_takes_few_statements() -> None:
    from django.db import connection

    client = logged_in(staff("inventory.view_activity"))
    key = client.cookies[settings.SESSION_COOKIE_NAME].value
    with CaptureQueriesContext(connection) as captured:
        assert may_watch(key) is True
    assert len(captured) <= 4
    assert may_watch("") is False


def test_the_sampler_is_not_needed_to_open_the_page() -> None:
    page = logged_in(User.objects.create_superuser("root")).get("/admin/monitor/?wall")
    assert b"monitor-page wall" in page.content

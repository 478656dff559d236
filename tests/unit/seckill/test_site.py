"""Django's lanes: a body is there before its request takes one; it is bounded in size and time."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import path

from seckill.site import Site
from tests.fixtures.web import eventually

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
SCOPE: Message = {
    "type": "http",
    "http_version": "1.1",
    "method": "POST",
    "path": "/",
    "query_string": b"",
    "headers": [(b"host", b"localhost"), (b"transfer-encoding", b"chunked")],
}


def piece(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


class Client:
    """One request; `feed` is what the server gets of it."""

    def __init__(self, *messages: Message) -> None:
        self.feed: asyncio.Queue[Message] = asyncio.Queue()
        for message in messages:
            self.feed.put_nowait(message)
        self.sent: list[Message] = []

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    def ask(self, site: Site, **scope: Any) -> "asyncio.Task[None]":
        return asyncio.create_task(site(SCOPE | scope, self.feed.get, self.send))

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent[1:])


class Echo:
    """A handler that reads as Django does and answers with what it read."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Message, receive: Receive, send: Any) -> None:
        message = await receive()
        assert not message["more_body"]
        self.bodies.append(message["body"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": message["body"]})


def site_of(handler: Any, **more: Any) -> Site:
    return Site(handler, **{"lanes": 2, "paying": 1, "body_max": 1_000_000, **more})


async def done(task: "asyncio.Task[None]") -> None:
    await asyncio.wait_for(task, timeout=5)


@pytest.mark.parametrize(
    ("version", "headers"),
    [
        ("1.1", [(b"transfer-encoding", b"chunked")]),
        ("1.1", [(b"host", b"localhost"), (b"content-length", b"2")]),
        ("2", []),
    ],
)
async def test_slow_uploads_take_no_lane(version: str, headers: list[tuple[bytes, bytes]]) -> None:
    site = site_of(Echo())
    slow = [Client(piece(b"a", more=True)) for _ in range(5)]
    tasks = [client.ask(site, http_version=version, headers=headers) for client in slow]
    await asyncio.sleep(0.01)

    quick = Client(piece(b""))
    await done(quick.ask(site, method="GET", headers=[]))

    assert (quick.status, quick.body) == (200, b"")
    for client, task in zip(slow, tasks, strict=True):
        client.feed.put_nowait(piece(b"b"))
        await done(task)
    assert [client.body for client in slow] == [b"ab"] * 5
    site.close()


async def test_a_body_that_does_not_come_in_time_is_408() -> None:
    echo = Echo()
    site = site_of(echo, lanes=1, body_s=0.05)
    client = Client(piece(b"a", more=True))
    await done(client.ask(site))

    assert (client.status, json.loads(client.body)["code"]) == (408, "BODY_TOO_SLOW")
    assert echo.bodies == []
    site.close()


async def test_the_time_is_for_the_body_not_for_the_answer() -> None:
    async def slow_handler(scope: Message, receive: Receive, send: Any) -> None:
        await asyncio.sleep(0.2)
        await Echo()(scope, receive, send)

    site = site_of(slow_handler, body_s=0.05)
    client = Client(piece(b"a"))
    await done(client.ask(site))
    assert (client.status, client.body) == (200, b"a")
    site.close()


@pytest.mark.parametrize("size", [100_000, 100_001])
async def test_a_body_may_have_so_many_bytes_and_no_more(size: int) -> None:
    echo = Echo()
    site = site_of(echo, body_max=100_000)
    pieces = [piece(b"x" * 1000, more=True)] * (size // 1000)
    client = Client(*pieces, piece(b"y" * (size % 1000), more=size > 100_000))
    await done(client.ask(site))

    if size <= 100_000:
        assert (client.status, echo.bodies) == (200, [b"x" * 100_000])
    else:
        problem = json.loads(client.body)
        assert (client.status, problem["code"]) == (413, "TOO_LARGE")
        assert problem["detail"] == "The body may have 100000 bytes."
        assert echo.bodies == []
    site.close()


async def test_a_client_that_goes_away_while_uploading_is_not_served() -> None:
    echo = Echo()
    site = site_of(echo)
    client = Client(piece(b"a", more=True), {"type": "http.disconnect"})
    await done(client.ask(site))
    assert (client.sent, echo.bodies) == ([], [])
    site.close()


class Slow:
    """A handler whose requests wait until they are let go."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.held: list[str] = []

    async def __call__(self, scope: Message, receive: Receive, send: Any) -> None:
        self.held.append(scope["path"])
        await self.go.wait()
        await Echo()(scope, receive, send)


PAYMENTS = "/api/v1/orders/ord_1/payments"


async def test_payments_hold_a_few_lanes_and_wait_for_each_other() -> None:
    slow = Slow()
    site = site_of(slow, lanes=3, paying=2)
    paying = [Client(piece(b"")) for _ in range(4)]
    tasks = [client.ask(site, path=PAYMENTS) for client in paying]
    await eventually(lambda: slow.held == [PAYMENTS] * 2)

    others = ["/api/v1/payments/webhooks/sandbox", PAYMENTS]  # a POST, and a look at payments
    asked = [
        (Client(piece(b"")), {"path": others[0]}),
        (Client(piece(b"")), {"path": others[1], "method": "GET", "headers": []}),
    ]
    more = [client.ask(site, **scope) for client, scope in asked]
    await eventually(lambda: len(slow.held) == 3)  # the last lane went to another
    assert slow.held[2] == others[0]

    slow.go.set()
    for task in tasks + more:
        await done(task)
    assert [client.status for client in paying] == [200] * 4
    assert sorted(slow.held) == sorted([PAYMENTS] * 5 + [others[0]])
    site.close()


@pytest.mark.parametrize("path", ["/readyz", "/metrics"])
async def test_who_watches_waits_behind_nobody_else(path: str) -> None:
    slow = Slow()
    site = site_of(slow, lanes=1)
    busy = [Client(piece(b"")) for _ in range(2)]
    tasks = [client.ask(site, path="/admin/") for client in busy]
    await eventually(lambda: slow.held == ["/admin/"])

    watching = Client(piece(b""))
    tasks.append(watching.ask(site, path=path, method="GET", headers=[]))
    await eventually(lambda: slow.held == ["/admin/", path])

    slow.go.set()
    for task in tasks:
        await done(task)
    site.close()


# -- with Django's own handler -------------------------------------------------------------------
ended: list[str] = []


def echo_view(request: HttpRequest) -> HttpResponse:
    return HttpResponse(request.body)


async def stream_view(request: HttpRequest) -> StreamingHttpResponse:
    async def parts() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"tick"
                await asyncio.sleep(0.01)
        finally:
            ended.append(request.method or "")

    return StreamingHttpResponse(parts())


urlpatterns = [path("", echo_view), path("stream", stream_view)]


@pytest.fixture
def django(settings: Any) -> ASGIHandler:
    settings.ROOT_URLCONF = __name__
    settings.MIDDLEWARE = []
    return ASGIHandler()


async def test_django_gets_the_whole_body(django: ASGIHandler) -> None:
    site = site_of(django)
    whole = bytes(range(256)) * 1_000
    pieces = [piece(whole[at : at + 1_000], more=True) for at in range(0, len(whole), 1_000)]
    client = Client(*pieces, piece(b""))
    await done(client.ask(site))
    assert (client.status, client.body) == (200, whole)
    site.close()


@pytest.mark.parametrize(("method", "headers"), [("GET", []), ("POST", SCOPE["headers"])])
async def test_django_hears_that_the_client_of_a_stream_went_away(
    django: ASGIHandler, method: str, headers: list[tuple[bytes, bytes]]
) -> None:
    ended.clear()
    site = site_of(django, lanes=1)
    client = Client(piece(b""))
    task = client.ask(site, path="/stream", method=method, headers=headers)
    await eventually(lambda: client.body.startswith(b"ticktick"))

    client.feed.put_nowait({"type": "http.disconnect"})
    await done(task)

    assert ended == [method]
    after = Client(piece(b"x"))
    await done(after.ask(site))
    assert after.body == b"x"
    site.close()

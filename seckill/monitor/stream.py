"""`GET /admin/monitor/stream`: the snapshots as server-sent events, in front of Django.

However many watch, a process reads Redis once a second, and only while somebody does; each viewer
costs one write a second, and a look at the session when the stream begins and once a minute.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import structlog
from django.conf import settings
from django.http.cookie import parse_cookie

from inventory.errors import InventoryError
from inventory.gate import AsyncGate
from seckill.admission.database import DatabaseThreads
from seckill.admission.problems import Answer, method_not_allowed, ready
from seckill.monitor import store
from seckill.monitor.viewers import may_watch

log = structlog.get_logger(__name__)

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

PATH: Final = "/admin/monitor/stream"
MAX_VIEWERS: Final = 500
_EVERY_S: Final = 1.0
_ASK_AGAIN_S: Final = 60.0
_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class Feed:
    """The newest snapshot as an event, read once a second while anybody waits for it."""

    def __init__(self, gate: AsyncGate, *, every_s: float = _EVERY_S) -> None:
        self._gate = gate
        self._every_s = every_s
        self._next: asyncio.Future[bytes] | None = None
        self._waiting = 0
        self._task: asyncio.Task[None] | None = None

    async def next(self) -> bytes:
        """Wait for the next event; all who wait get the same bytes."""
        if self._next is None or self._next.done():
            self._next = asyncio.get_running_loop().create_future()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._read_on())
        self._waiting += 1
        try:
            return await asyncio.shield(self._next)
        finally:
            self._waiting -= 1

    async def _read_on(self) -> None:
        """Read until nobody has waited for a whole second."""
        while True:
            event = await self._read()
            if self._next is not None and not self._next.done():
                self._next.set_result(event)
            await asyncio.sleep(self._every_s)
            if not self._waiting:
                return

    async def _read(self) -> bytes:
        try:
            found = await self._gate.run(store.read())
        except InventoryError as error:
            return b'event: silent\ndata: {"why": "%b"}\n\n' % type(error).__name__.encode()
        if found.snapshot is None:
            return b'event: silent\ndata: {"why": "NOBODY_SAMPLES"}\n\n'
        return b'event: snapshot\ndata: {"now_ms": %d, "snapshot": %b}\n\n' % (
            found.now_ms,
            found.snapshot.encode(),
        )

    async def close(self) -> None:
        """Read no more."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task


class MonitorStreams:
    """All viewers of one process.

    Args:
        gate: reads the snapshot.
        database: looks the viewers' sessions up.
        ask_again_s: a session that ended ends its streams within this time.
    """

    def __init__(
        self, *, gate: AsyncGate, database: DatabaseThreads, ask_again_s: float = _ASK_AGAIN_S
    ) -> None:
        self.feed = Feed(gate)
        self._database = database
        self._ask_again_s = ask_again_s
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one viewer until the end, his or ours."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._serve(scope, send))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        gone = loop.create_task(_disconnect(receive))
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        for each in (gone, task):
            each.cancel()
            with suppress(asyncio.CancelledError):
                await each

    async def _serve(self, scope: Scope, send: Send) -> None:
        if scope["method"] != "GET":
            await _answer(send, method_not_allowed(b"GET"))
            return
        if len(self._tasks) > MAX_VIEWERS:
            await _answer(send, ready("OVERLOADED"))
            return
        session_key = _session_key(scope)
        allowed = await self._may_watch(session_key)
        if not allowed:
            code = "UNAVAILABLE" if allowed is None else "UNAUTHENTICATED"
            await _answer(send, ready(code))
            return
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        loop = asyncio.get_running_loop()
        ask_at = loop.time() + self._ask_again_s
        while True:
            event = await self.feed.next()
            await send({"type": "http.response.body", "body": event, "more_body": True})
            if loop.time() >= ask_at:
                # Without the database nobody is sent away: that is when people must see.
                if await self._may_watch(session_key) is False:
                    break
                ask_at = loop.time() + self._ask_again_s
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _may_watch(self, session_key: str) -> bool | None:
        """Tell whether the session's user may watch; None when nobody could be asked."""
        try:
            return await self._database.run(may_watch, session_key)
        except Exception as error:
            log.warning("viewer_not_asked", error=repr(error))
            return None

    def end(self) -> None:
        """End all streams; browsers connect again elsewhere."""
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """End all streams and wait for it."""
        self.end()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.feed.close()


def _session_key(scope: Scope) -> str:
    headers: dict[bytes, bytes] = dict(scope["headers"])
    cookies = parse_cookie(headers.get(b"cookie", b"").decode("latin-1"))
    return str(cookies.get(settings.SESSION_COOKIE_NAME, ""))


async def _answer(send: Send, answer: Answer) -> None:
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
    await send({"type": "http.response.body", "body": answer.body})


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

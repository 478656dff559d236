"""Django behind a fixed number of threads.

Django's own ASGI handler starts a thread for each request, and a thread has a database connection
of its own: a crowd would open as many. Here each request borrows one of a few lanes, a thread that
lives as long as the process, so that connections persist and are bounded. A request takes its lane
when its body is there: slow uploads keep nobody waiting. Neither do those who pay, who wait for the
provider in their lanes: they have a few of them at most. Who watches the process has a lane apart.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from tempfile import SpooledTemporaryFile
from typing import IO, Any, Final

from asgiref.sync import ThreadSensitiveContext
from django.core.handlers.asgi import ASGIHandler
from django.db import connections

from messaging.pool_wait import holding
from seckill.admission.problems import Answer, build, ready

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Any], Awaitable[None]]

WATCHING: Final = frozenset({"/readyz", "/metrics"})
# Most of a body that stays in memory while the rest is on its way; API bodies are below.
_IN_MEMORY: Final = 65_536
_BODY_S: Final = 10.0
_ANNOUNCE_A_BODY: Final = frozenset({b"content-length", b"transfer-encoding"})


class Site:
    """Django's ASGI handler on bounded lanes.

    Args:
        handler: the handler to call.
        lanes: requests (threads, database connections) at a time; more wait their turn.
        paying: so many of the lanes may be held by payments; more of these wait for each other.
        body_max: bytes that a body may have.
        body_s: time that a body may take to come.
    """

    def __init__(
        self,
        handler: ASGIHandler,
        *,
        lanes: int,
        paying: int,
        body_max: int,
        body_s: float = _BODY_S,
    ) -> None:
        self._handler = handler
        self._body_max = body_max
        self._body_s = body_s
        self._too_large = build("TOO_LARGE", detail=f"The body may have {body_max} bytes.")
        self._lanes = [
            ThreadPoolExecutor(1, thread_name_prefix=f"site-{number}")
            for number in range(lanes + 1)
        ]
        self._free: asyncio.LifoQueue[ThreadPoolExecutor] = asyncio.LifoQueue()
        self._watching: asyncio.LifoQueue[ThreadPoolExecutor] = asyncio.LifoQueue()
        self._watching.put_nowait(self._lanes[0])
        for lane in self._lanes[1:]:
            self._free.put_nowait(lane)
        self._paying = asyncio.Semaphore(paying)

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if not _may_have_body(scope):
            await self._handle(scope, receive, send)
            return
        with SpooledTemporaryFile(max_size=_IN_MEMORY) as body:
            try:
                async with asyncio.timeout(self._body_s):
                    size = await self._read(receive, body)
            except TimeoutError:
                await answer(send, ready("BODY_TOO_SLOW"))
                return
            if size is None:
                return  # the client is gone
            if size > self._body_max:
                await answer(send, self._too_large)
                return
            body.seek(0)
            await self._handle(scope, _replay(body, receive), send)

    async def _read(self, receive: Receive, body: IO[bytes]) -> int | None:
        """Read a body; return its size, or None when the client went away.

        A body that is too large is read no further.
        """
        size, more = 0, True
        while more and size <= self._body_max:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            size += body.write(message.get("body", b""))
            more = message.get("more_body", False)
        return size

    async def _handle(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        asked_at = time.monotonic()
        free = self._watching if scope["path"] in WATCHING else self._free
        async with self._paying if _pays(scope) else nullcontext():
            lane = await free.get()
            try:
                with holding("web", asked_at=asked_at):
                    async with ThreadSensitiveContext(executor=lane):
                        await self._handler(scope, receive, send)
            finally:
                free.put_nowait(lane)

    def close(self) -> None:
        """Close every lane's connection and end its thread."""
        for lane in self._lanes:
            lane.submit(connections.close_all)
            lane.shutdown(wait=True)


def _pays(scope: dict[str, Any]) -> bool:
    """Tell whether the request calls the payment provider and waits for its answer."""
    path: str = scope["path"]
    return (
        scope["method"] == "POST"
        and path.startswith("/api/v1/orders/")
        and path.endswith("/payments")
    )


def _may_have_body(scope: dict[str, Any]) -> bool:
    """Tell whether a body may come: in HTTP/1 a header announces it, in HTTP/2 nothing need."""
    return not scope["http_version"].startswith("1") or any(
        name in _ANNOUNCE_A_BODY for name, _ in scope["headers"]
    )


def _replay(body: IO[bytes], receive: Receive) -> Receive:
    """Return a `receive` that gives the whole body, then what else comes: the disconnect."""
    is_given = False

    async def replay() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body.read(), "more_body": False}

    return replay


async def answer(send: Send, found: Answer) -> None:
    """Send a whole answer."""
    await send({"type": "http.response.start", "status": found.status, "headers": found.headers})
    await send({"type": "http.response.body", "body": found.body})

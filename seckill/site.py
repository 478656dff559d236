"""Django behind a fixed number of threads.

Django's own ASGI handler starts a thread for each request, and a thread has a database connection
of its own: a crowd would open as many. Here each request borrows one of a few lanes, a thread that
lives as long as the process, so that connections persist and are bounded.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from asgiref.sync import ThreadSensitiveContext
from django.core.handlers.asgi import ASGIHandler
from django.db import connections

from messaging.pool_wait import holding


class Site:
    """Django's ASGI handler on bounded lanes.

    Args:
        handler: the handler to call.
        lanes: requests (threads, database connections) at a time; more wait their turn.
    """

    def __init__(self, handler: ASGIHandler, *, lanes: int) -> None:
        self._handler = handler
        self._lanes = [
            ThreadPoolExecutor(1, thread_name_prefix=f"site-{number}") for number in range(lanes)
        ]
        self._free: asyncio.LifoQueue[ThreadPoolExecutor] = asyncio.LifoQueue()
        for lane in self._lanes:
            self._free.put_nowait(lane)

    async def __call__(
        self,
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
        """Answer one HTTP request."""
        asked_at = time.monotonic()
        lane = await self._free.get()
        try:
            with holding("web", asked_at=asked_at):
                async with ThreadSensitiveContext(executor=lane):
                    await self._handler(scope, receive, send)
        finally:
            self._free.put_nowait(lane)

    def close(self) -> None:
        """Close every lane's connection and end its thread."""
        for lane in self._lanes:
            lane.submit(connections.close_all)
            lane.shutdown(wait=True)

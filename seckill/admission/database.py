"""PostgreSQL for the event loop: a few threads with a connection each, beside Django's views.

The hot path asks here only for what it has never seen (an unknown SKU, a reject to explain); status
streams read through it, too.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from django.db import close_old_connections, connections

from messaging.pool_wait import holding

P = ParamSpec("P")
R = TypeVar("R")


class DatabaseThreads:
    """A bounded pool of threads, each with at most one connection.

    Args:
        size: threads; more calls wait their turn.
    """

    def __init__(self, size: int = 4) -> None:
        self._size = size
        self._pool = ThreadPoolExecutor(size, thread_name_prefix="database")

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a blocking function that reads the database; its exceptions pass through."""
        asked_at = time.monotonic()
        call: Callable[[], R] = partial(_fresh, partial(function, *args, **kwargs), asked_at)
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    def close(self) -> None:
        """Close every thread's connection, then the threads."""
        together = threading.Barrier(self._size)
        for _ in range(self._size):
            self._pool.submit(_close_mine, together)
        self._pool.shutdown(wait=True)


def _fresh(call: Callable[[], R], asked_at: float) -> R:
    with holding("web", asked_at=asked_at):
        close_old_connections()
        try:
            return call()
        finally:
            close_old_connections()


def _close_mine(together: threading.Barrier) -> Any:
    """Meet the other threads first: so each thread runs this once."""
    together.wait(timeout=10)
    connections.close_all()

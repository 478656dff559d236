"""Which activities and SKUs exist, as this process last read it from PostgreSQL.

An unknown pair reads the whole list again, at most once a second and once at a time: whatever
clients invent costs the database one query a second. Who asks in between waits for the next read:
the first buyers of a sale made a moment ago are not told that there is none.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class CatalogueEntry:
    """What admission must know of a SKU. `opened`: its gate was opened once; `over`: for good."""

    opened: bool
    over: bool


Key = tuple[int, int]  # activity, SKU


class CatalogueUnread(Exception):
    """The last read failed, and it is too early for another."""


class Catalogue:
    """Known SKUs by (activity, SKU).

    Args:
        load: reads all of them; an exception leaves the known ones as they were.
        pause_s: shortest time between the end of a read, also of a failed one, and the next.
    """

    def __init__(
        self,
        load: Callable[[], Awaitable[Mapping[Key, CatalogueEntry]]],
        *,
        pause_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._load = load
        self._pause_s = pause_s
        self._clock = clock
        self._sleep = sleep
        self._entries: dict[Key, CatalogueEntry] = {}
        self._tried_at = float("-inf")
        self._failed = False
        self._reading: asyncio.Task[None] | None = None

    def known(self, key: Key) -> bool:
        """Whether the SKU was in the last list; no I/O."""
        return key in self._entries

    async def find(self, key: Key) -> CatalogueEntry | None:
        """Return a SKU that may have appeared or changed since the last read, or None.

        Raises:
            CatalogueUnread: the last read failed a moment ago.
            Exception: what `load` raised.
        """
        if self._pause_left_s() > 0:
            if self._failed:
                raise CatalogueUnread
            if key in self._entries:
                return self._entries[key]
            await self._sleep(self._pause_left_s())
        # Of those who waited the first reads for all.
        if self._reading is not None or self._pause_left_s() <= 0:
            await self.refresh()
        return self._entries.get(key)

    def _pause_left_s(self) -> float:
        return self._tried_at + self._pause_s - self._clock()

    async def refresh(self) -> None:
        """Read the list now, or join the read that is under way."""
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read())
            self._reading.add_done_callback(self._read_ended)
        await asyncio.shield(self._reading)

    async def _read(self) -> None:
        self._entries = dict(await self._load())

    def _read_ended(self, task: asyncio.Task[None]) -> None:
        self._reading = None
        # A failed read counts, too: a database that is not there costs seconds at each attempt.
        self._tried_at = self._clock()
        self._failed = task.cancelled() or task.exception() is not None

"""Which activities and SKUs exist, as this process last read it from PostgreSQL.

An unknown pair reads the whole list again, at most once a second and once at a time: whatever
clients invent costs the database one query a second.
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


class Catalogue:
    """Known SKUs by (activity, SKU).

    Args:
        load: reads all of them; an exception leaves the known ones as they were.
        pause_s: shortest time between two reads.
    """

    def __init__(
        self,
        load: Callable[[], Awaitable[Mapping[Key, CatalogueEntry]]],
        *,
        pause_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._load = load
        self._pause_s = pause_s
        self._clock = clock
        self._entries: dict[Key, CatalogueEntry] = {}
        self._read_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None

    def known(self, key: Key) -> bool:
        """Whether the SKU was in the last list; no I/O."""
        return key in self._entries

    async def find(self, key: Key) -> CatalogueEntry | None:
        """Return a SKU that may have appeared or changed since the last read, or None.

        Raises:
            Exception: what `load` raised, when nothing is known of the key.
        """
        if self._clock() - self._read_at >= self._pause_s:
            await self.refresh()
        return self._entries.get(key)

    async def refresh(self) -> None:
        """Read the list now, or join the read that is under way."""
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read())
            self._reading.add_done_callback(self._read_ended)
        await asyncio.shield(self._reading)

    async def _read(self) -> None:
        entries = await self._load()
        self._entries = dict(entries)
        self._read_at = self._clock()

    def _read_ended(self, task: asyncio.Task[None]) -> None:
        self._reading = None
        if not task.cancelled():
            task.exception()  # those who waited got it

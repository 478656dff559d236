"""Answers "sold out" without asking Redis, and never to somebody who holds a reservation.

The flag of a SKU is set only when its gate was read with stock 0, together with the set of holders,
under one gate version. It is used while that version stands, checked every 200 ms: whatever gives
units back (release, top-up) or changes the gate raises the version.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass

import structlog

from inventory.contracts import GateState
from inventory.errors import InventoryError
from inventory.states import GateStatus

log = structlog.get_logger(__name__)

Key = tuple[int, int]  # activity, SKU
_STALE_S = 0.8  # an unchecked flag clears within a second even when the checks hang
_RETRY_MAX_S = 10.0  # the longest time between two watches that fail
_REST = 4  # a watch rests so many times as long as it read: many holders take long to read


@dataclass(slots=True)
class _Flag:
    version: int
    holders: frozenset[str]
    limit_per_user: int
    checked_at: float


class SoldOut:
    """The flags of one process.

    Args:
        read_state: reads a gate, None when it has no keys.
        read_holders: reads the users who hold a reservation of the SKU.
        check_s: time between two checks of a flag, and the least between two reads of holders.
    """

    def __init__(
        self,
        *,
        read_state: Callable[[int, int], Awaitable[GateState | None]],
        read_holders: Callable[[int, int], Awaitable[Collection[str]]],
        check_s: float = 0.2,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._read_state = read_state
        self._read_holders = read_holders
        self._check_s = check_s
        self._clock = clock
        self._wall_clock = wall_clock
        self._flags: dict[Key, _Flag] = {}
        self._watches: dict[Key, asyncio.Task[None]] = {}
        # How often a key's watch failed in a row, and when the next may begin.
        self._failed: dict[Key, tuple[int, float]] = {}
        self._closing = asyncio.Event()

    def refuses(self, key: Key, user_id: str, quantity: int) -> bool:
        """Whether this buyer may be told SOLD_OUT now. False: ask the gate."""
        flag = self._flags.get(key)
        return (
            flag is not None
            and user_id not in flag.holders
            and quantity <= flag.limit_per_user
            and self._clock() - flag.checked_at < _STALE_S
        )

    def note(self, key: Key) -> None:
        """The gate said that no unit is left: begin to watch the SKU.

        Not when that is under way, nor soon after it failed: this is called for each such answer,
        and a Redis that cannot serve one watch must not get one after the other.
        """
        _, not_before = self._failed.get(key, (0, 0.0))
        if key not in self._watches and self._clock() >= not_before:
            task = asyncio.get_running_loop().create_task(self._watch(key))
            self._watches[key] = task
            task.add_done_callback(lambda _: self._watches.pop(key, None))

    async def _watch(self, key: Key) -> None:
        """Keep one SKU's flag true until the gate has units again or cannot be read."""
        try:
            while not self._closing.is_set():
                began_at = self._clock()
                if not await self._raise_flag(key):
                    break
                read_s = self._clock() - began_at
                self._failed.pop(key, None)
                await self._stand(key)
                await self._pause(began_at + (1 + _REST) * read_s - self._clock())
        except InventoryError as error:
            times = self._failed.get(key, (0, 0.0))[0] + 1
            pause_s = min(self._check_s * 2 ** min(times, 10), _RETRY_MAX_S)
            self._failed[key] = (times, self._clock() + pause_s)
            log.warning("sold_out_watch_ended", activity_id=key[0], sku_id=key[1], error=str(error))
        finally:
            self._flags.pop(key, None)

    async def _raise_flag(self, key: Key) -> bool:
        """Read holders between two equal states; True when the SKU is still to be watched."""
        before = await self._read_state(*key)
        if not self._is_sold_out(before):
            return False
        holders = frozenset(await self._read_holders(*key))
        after = await self._read_state(*key)
        if before is not None and after is not None and after.version == before.version:
            self._flags[key] = _Flag(
                version=after.version,
                holders=holders,
                limit_per_user=after.config.limit_per_user,
                checked_at=self._clock(),
            )
        return True

    async def _stand(self, key: Key) -> None:
        """Check the flag every 200 ms; clear it and return when its version is no more."""
        while True:
            await self._pause(self._check_s)
            flag = self._flags.get(key)
            if flag is None or self._closing.is_set():
                return
            asked_at = self._clock()
            state = await self._read_state(*key)
            if not self._is_sold_out(state) or state is None or state.version != flag.version:
                del self._flags[key]
                return
            flag.checked_at = asked_at

    async def _pause(self, seconds: float) -> None:
        """Wait, but not when it is time to close."""
        if seconds > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), seconds)

    def _is_sold_out(self, state: GateState | None) -> bool:
        """Open, empty, and not in the window's last second: from then on the gate answers."""
        return (
            state is not None
            and state.stock == 0
            and state.status == GateStatus.OPEN
            and not state.stopped
            and self._wall_clock() * 1000 < state.config.ends_ms - 1000
        )

    async def close(self) -> None:
        """Stop watching; reads under way end first, so that their connections are whole."""
        self._closing.set()
        await asyncio.gather(*self._watches.values(), return_exceptions=True)

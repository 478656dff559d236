"""Who listens to which reservation: one Redis subscription for all streams of a process."""

import asyncio
from collections import defaultdict
from contextlib import suppress

import msgspec
import structlog

from inventory import keys
from inventory.errors import GateUnavailable
from inventory.gate import AsyncGate
from orders.projection import StatusChange

log = structlog.get_logger(__name__)

_RETRY_S = 1.0
_decode = msgspec.json.Decoder(StatusChange).decode


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    """Wait for an event, no longer than this."""
    with suppress(TimeoutError):
        # Not wait_for: Python 3.11's can swallow a cancel that meets the event.
        async with asyncio.timeout(timeout_s):
            await event.wait()


class Listener:
    """One stream's mailbox: only the newest change is kept, versions make older ones useless."""

    __slots__ = ("_change", "_event")

    def __init__(self) -> None:
        self._change: StatusChange | None = None
        self._event = asyncio.Event()

    def put(self, change: StatusChange) -> None:
        """Leave a change, unless a newer one waits already."""
        if self._change is None or change.version >= self._change.version:
            self._change = change
            self._event.set()

    async def take(self, timeout_s: float) -> StatusChange | None:
        """Wait for a change; None when none came in time."""
        await _wait(self._event, timeout_s)
        self._event.clear()
        change, self._change = self._change, None
        return change


class Hub:
    """Passes published changes on to this process's listeners.

    Subscribes with the first listener and stays subscribed. While Redis is away nothing is heard;
    streams read PostgreSQL again every few seconds, so they only get slower.
    """

    def __init__(self, gate: AsyncGate) -> None:
        self._gate = gate
        self._listeners: defaultdict[str, set[Listener]] = defaultdict(set)
        self._task: asyncio.Task[None] | None = None
        self._standing = asyncio.Event()

    async def join(self, reservation_id: str) -> Listener:
        """Begin to listen; returns when the subscription stands, or after a second without it."""
        listener = Listener()
        self._listeners[reservation_id].add(listener)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._listen())
        try:
            await _wait(self._standing, _RETRY_S)
        except BaseException:
            # A client that goes away now: its caller never gets what it would have to leave.
            self.leave(reservation_id, listener)
            raise
        return listener

    def leave(self, reservation_id: str, listener: Listener) -> None:
        """Stop listening."""
        listeners = self._listeners.get(reservation_id)
        if listeners is not None:
            listeners.discard(listener)
            if not listeners:
                del self._listeners[reservation_id]

    async def _listen(self) -> None:
        while True:
            try:
                async for channel, payload in self._gate.subscribe(keys.EVENTS_PATTERN):
                    if channel:
                        self._dispatch(payload)
                    else:
                        self._standing.set()
            except GateUnavailable as error:
                log.warning("status_subscription_lost", error=str(error))
            self._standing.clear()
            await asyncio.sleep(_RETRY_S)

    def _dispatch(self, payload: bytes) -> None:
        try:
            change = _decode(payload)
        except msgspec.MsgspecError:
            log.warning("status_change_unreadable", size=len(payload))
            return
        for listener in self._listeners.get(change.reservation_id, ()):
            listener.put(change)

    async def close(self) -> None:
        """Unsubscribe."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

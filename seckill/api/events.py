"""`GET …/reservations/{rsv}/events`: a reservation's status as server-sent events.

Subscribe, then the snapshot, then changes by version: so nothing falls between. Every 5 s the
status is read again, because a publication may be lost and PENDING → QUEUED is not published.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import orjson
import structlog

from inventory.contracts import PublicStatus
from inventory.gate import AsyncGate
from orders.selectors import ReservationView, reservation_status
from seckill.admission.database import DatabaseThreads
from seckill.admission.problems import Answer, method_not_allowed, ready
from seckill.admission.tokens import InvalidToken, TokenVerifier
from seckill.api.status import status_document
from seckill.api.streams import Hub

log = structlog.get_logger(__name__)

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

REREAD_S: Final = 5.0
MAX_STREAMS: Final = 2_000
# A client that wants to follow an order for longer connects again and gets a snapshot.
LONGEST_S: Final = 15 * 60.0
_PATH: Final = re.compile(
    r"/api/v1/activities/([1-9][0-9]{0,17})/reservations/(rsv_[0-9A-Z]{26})/events"
)
_FINAL: Final = frozenset({PublicStatus.REJECTED, PublicStatus.EXPIRED, PublicStatus.CANCELED})
_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


def stream_target(path: str) -> tuple[int, str] | None:
    """Return (activity, reservation) when the path is a status stream's."""
    match = _PATH.fullmatch(path) if path.endswith("/events") else None
    return (int(match[1]), match[2]) if match else None


class StatusStreams:
    """All streams of one process.

    Args:
        gate: subscribes.
        database: reads the status.
        verifier: tells whose the stream is.
    """

    def __init__(
        self, *, gate: AsyncGate, database: DatabaseThreads, verifier: TokenVerifier
    ) -> None:
        self._hub = Hub(gate)
        self._database = database
        self._verifier = verifier
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send, target: tuple[int, str]
    ) -> None:
        """Serve one stream until its end, the client's or ours."""
        task = asyncio.get_running_loop().create_task(self._serve(scope, send, target))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        gone = asyncio.get_running_loop().create_task(_disconnect(receive))
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def _serve(self, scope: Scope, send: Send, target: tuple[int, str]) -> None:
        activity_id, reservation_id = target
        refused, user_id = await self._caller(scope)
        if refused is not None:
            await _answer(send, refused)
            return
        listener = await self._hub.join(reservation_id)
        try:
            status = await self._read(activity_id, reservation_id, user_id)
            if status is None or isinstance(status, Answer):
                await _answer(send, status or ready("NOT_FOUND"))
                return
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await self._follow(send, status, user_id, listener.take)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._hub.leave(reservation_id, listener)

    async def _follow(
        self,
        send: Send,
        shown: ReservationView,
        user_id: str,
        take: Callable[[float], Awaitable[Any]],
    ) -> None:
        """Send the snapshot, then what is newer, until a final state."""
        await _event(send, shown)
        ends_at = asyncio.get_running_loop().time() + LONGEST_S
        while shown.status not in _FINAL and asyncio.get_running_loop().time() < ends_at:
            change = await take(REREAD_S)
            if change is not None and change.version <= shown.version:
                continue
            status = await self._read(shown.activity_id, shown.reservation_id, user_id)
            if (
                isinstance(status, ReservationView)
                and status != shown
                and status.version >= shown.version
            ):
                shown = status
                await _event(send, shown)
            else:
                # Nothing new: a comment keeps proxies from closing the connection.
                await send(
                    {"type": "http.response.body", "body": b": still here\n\n", "more_body": True}
                )

    async def _caller(self, scope: Scope) -> tuple[Answer | None, str]:
        """Return (problem, "") or (None, user id)."""
        if scope["method"] != "GET":
            return method_not_allowed(b"GET"), ""
        if len(self._tasks) > MAX_STREAMS:
            return ready("OVERLOADED"), ""
        authorization: bytes = dict(scope["headers"]).get(b"authorization", b"")
        if authorization[:7].lower() != b"bearer ":
            return ready("UNAUTHENTICATED"), ""
        try:
            return None, await self._verifier.verify_async(authorization[7:].strip())
        except InvalidToken:
            return ready("UNAUTHENTICATED"), ""

    async def _read(
        self, activity_id: int, reservation_id: str, user_id: str
    ) -> ReservationView | Answer | None:
        """Read a status; None when there is no such reservation of this buyer."""
        try:
            return await self._database.run(
                reservation_status,
                activity_id=activity_id,
                reservation_id=reservation_id,
                user_id=user_id,
            )
        except Exception as error:
            log.warning("status_unread", reservation_id=reservation_id, error=repr(error))
            return ready("UNAVAILABLE")

    def end(self) -> None:
        """End all streams; their clients connect again elsewhere."""
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """End all streams and wait for it."""
        self.end()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._hub.close()


async def _event(send: Send, status: ReservationView) -> None:
    body = b"event: status\nid: %d\ndata: %b\n\n" % (
        status.version,
        orjson.dumps(status_document(status)),
    )
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _answer(send: Send, answer: Answer) -> None:
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
    await send({"type": "http.response.body", "body": answer.body})


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

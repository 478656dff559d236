"""Server-sent events: snapshot first, then changes; also after the end, also when Redis is mute."""

import asyncio
import json
from typing import Any

import pytest

from orders.cancel_order import cancel_by_user
from seckill.api import events
from tests.fixtures.sales import Sale, run_projection
from tests.fixtures.web import AsgiClient, StartWeb, bearer, eventually, in_thread


class Stream:
    """One open stream; `events` grows as they come."""

    def __init__(self, web: AsgiClient, path: str, user: str, method: str = "GET") -> None:
        self.status = 0
        self.text = b""
        self.ended = False
        self.hang_up = asyncio.Event()
        self.task = asyncio.create_task(self._run(web, path, user, method))

    async def _run(self, web: AsgiClient, path: str, user: str, method: str) -> None:
        async def receive() -> dict[str, Any]:
            await self.hang_up.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self.status = message["status"]
            else:
                self.text += message.get("body", b"")
                self.ended = not message.get("more_body", False)

        await web.app(web.scope(method, path, bearer(user) if user else {}), receive, send)

    @property
    def events(self) -> list[dict[str, Any]]:
        return [
            json.loads(line.removeprefix(b"data: "))
            for line in self.text.split(b"\n")
            if line.startswith(b"data: ")
        ]

    @property
    def statuses(self) -> list[str]:
        return [event["status"] for event in self.events]


def path_of(sale: Sale, reservation: Any) -> str:
    return f"/api/v1/activities/{sale.activity_id}/reservations/{reservation.reservation_id}/events"


async def test_snapshot_then_changes_until_a_final_state(start_web: StartWeb, sale: Sale) -> None:
    web = await start_web()
    reservation = sale.reserve("alice")
    stream = Stream(web, path_of(sale, reservation), "alice")
    await eventually(lambda: stream.statuses == ["QUEUED"])

    await in_thread(sale.deliver, reservation)
    await in_thread(run_projection)
    await eventually(lambda: stream.statuses == ["QUEUED", "ORDERED"], timeout_s=3)
    await in_thread(cancel_by_user, order_id=reservation.order_id, user_id="alice")
    await in_thread(run_projection)

    await asyncio.wait_for(stream.task, 3)
    assert stream.statuses == ["QUEUED", "ORDERED", "CANCELED"]
    assert stream.events[-1]["reason"] == "USER"
    assert stream.ended


async def test_after_completion_the_snapshot_comes_first(start_web: StartWeb, sale: Sale) -> None:
    """Case 24."""
    web = await start_web()
    reservation = sale.reserve("alice")
    await in_thread(sale.deliver, reservation)
    await in_thread(cancel_by_user, order_id=reservation.order_id, user_id="alice")

    stream = Stream(web, path_of(sale, reservation), "alice")

    await asyncio.wait_for(stream.task, 5)
    assert stream.status == 200
    assert stream.statuses == ["CANCELED"]
    assert stream.ended


async def test_unpublished_changes_are_found_by_reading_again(
    start_web: StartWeb, sale: Sale, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "REREAD_S", 0.1)
    web = await start_web()
    reservation = sale.reserve("alice")
    stream = Stream(web, path_of(sale, reservation), "alice")
    await eventually(lambda: b"still here" in stream.text)

    await in_thread(sale.deliver, reservation)

    await eventually(lambda: stream.statuses == ["QUEUED", "ORDERED"], timeout_s=3)
    stream.hang_up.set()
    await asyncio.wait_for(stream.task, 3)
    assert not stream.ended


async def test_strangers_and_bad_requests_get_problems(start_web: StartWeb, sale: Sale) -> None:
    web = await start_web()
    reservation = sale.reserve("alice")
    path = path_of(sale, reservation)
    for user, method, status in (("bob", "GET", 404), ("", "GET", 401), ("alice", "POST", 405)):
        stream = Stream(web, path, user, method)
        await asyncio.wait_for(stream.task, 5)
        assert stream.status == status
        assert json.loads(stream.text)["status"] == status

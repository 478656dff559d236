"""`/healthz` waits for nothing, whatever the process serves."""

import asyncio
from typing import Any

import pytest

from tests.fixtures.web import StartWeb


@pytest.mark.parametrize("role", ["all", "site", "admission"])
async def test_health_is_answered_while_every_lane_is_taken(
    start_web: StartWeb, settings: Any, role: str
) -> None:
    settings.SECKILL_WEB_ROLE = role
    web = await start_web()
    free = web.app._running.site._free  # type: ignore[attr-defined]
    lanes = [free.get_nowait() for _ in range(free.qsize())]

    waiting = asyncio.create_task(web.request("GET", "/metrics"))
    alive = await asyncio.wait_for(web.request("GET", "/healthz"), timeout=2)
    posted = await asyncio.wait_for(web.request("POST", "/healthz"), timeout=2)

    assert (alive.status, alive.body) == (200, b"ok")
    assert alive.headers["content-type"] == "text/plain"
    assert (posted.status, posted.headers["allow"]) == (405, "GET")
    assert not waiting.done()
    for lane in lanes:
        free.put_nowait(lane)
    assert (await waiting).status == 200

"""The hub of status streams: who listens, and that nobody does who went away."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from orders.projection import StatusChange
from seckill.api.streams import Hub, Listener


class MuteGate:
    """A gate whose subscription never stands."""

    async def subscribe(self, pattern: str) -> AsyncIterator[tuple[str, bytes]]:
        await asyncio.Event().wait()
        yield "", b""


async def test_who_goes_away_while_joining_leaves_no_listener() -> None:
    hub = Hub(MuteGate())
    joining = asyncio.create_task(hub.join("rsv_1"))
    await asyncio.sleep(0.01)
    assert hub._listeners.keys() == {"rsv_1"}

    joining.cancel()
    with pytest.raises(asyncio.CancelledError):
        await joining

    assert not hub._listeners
    await hub.close()


async def test_who_joins_without_a_subscription_listens_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("seckill.api.streams._RETRY_S", 0.01)
    hub = Hub(MuteGate())
    listener = await hub.join("rsv_1")
    assert hub._listeners == {"rsv_1": {listener}}
    hub.leave("rsv_1", listener)
    assert not hub._listeners
    await hub.close()


async def test_a_cancel_that_meets_a_change_is_not_lost() -> None:
    listener = Listener()
    taking = asyncio.create_task(listener.take(60))
    await asyncio.sleep(0.01)

    listener.put(CHANGE)
    taking.cancel()

    with pytest.raises(asyncio.CancelledError):
        await taking


CHANGE = StatusChange(
    reservation_id="rsv_1", order_id="ord_1", status="ORDERED", reason="", version=2
)

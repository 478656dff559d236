"""The sold-out flag: when it is set, whom it refuses, what clears it."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from inventory.contracts import GateConfig, GateState
from inventory.errors import GateUnavailable
from seckill.admission.soldout import SoldOut

KEY = (1, 2)
CONFIG = GateConfig(
    starts_ms=0, ends_ms=10**15, validity_ms=1, limit_per_user=2, max_open=1, max_pending=1
)
EMPTY = GateState(
    activity_id=1,
    sku_id=2,
    status="OPEN",
    stopped=False,
    config=CONFIG,
    version=7,
    epoch=1,
    rebuild_run=0,
    stock=0,
    warm=False,
)


class Gate:
    def __init__(self) -> None:
        self.state: GateState | None = EMPTY
        self.holders = {"holder"}
        self.while_reading: Callable[[], None] = lambda: None
        self.away = False
        self.reads = 0

    async def read_state(self, activity_id: int, sku_id: int) -> GateState | None:
        if self.away:
            raise GateUnavailable("away")
        return self.state

    async def read_holders(self, activity_id: int, sku_id: int) -> set[str]:
        self.reads += 1
        found = set(self.holders)
        self.while_reading()
        return found


def flags(gate: Gate, **options: Callable[[], float]) -> SoldOut:
    return SoldOut(
        read_state=gate.read_state, read_holders=gate.read_holders, check_s=0.005, **options
    )


async def ticks() -> None:
    await asyncio.sleep(0.03)


async def test_refuses_strangers_and_never_holders() -> None:
    made = flags(Gate())
    assert not made.refuses(KEY, "x", 1)
    made.note(KEY)
    await ticks()
    assert made.refuses(KEY, "x", 1)
    assert not made.refuses(KEY, "holder", 1)
    assert not made.refuses((1, 3), "x", 1)
    assert not made.refuses(KEY, "x", 3)  # above the limit: the gate says LIMIT_EXCEEDED
    await made.close()


async def test_a_change_while_holders_are_read_sets_no_flag() -> None:
    """The competitor: a release and a new buyer between the two reads of the version."""
    gate = Gate()

    def change() -> None:
        gate.state = replace(EMPTY, version=8)
        gate.holders = {"other"}
        gate.while_reading = lambda: None

    gate.while_reading = change
    made = flags(gate)
    made.note(KEY)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not made.refuses(KEY, "other", 1)
    await ticks()
    assert made.refuses(KEY, "x", 1)
    assert not made.refuses(KEY, "other", 1)
    await made.close()


async def test_cleared_by_version_stock_status_stop_end_and_loss() -> None:
    for state in (
        replace(EMPTY, version=8, stock=1),
        replace(EMPTY, stock=1),
        replace(EMPTY, status="PAUSED"),
        replace(EMPTY, stopped=True),
        replace(EMPTY, config=replace(CONFIG, ends_ms=1)),
        None,
    ):
        gate = Gate()
        made = flags(gate)
        made.note(KEY)
        await ticks()
        assert made.refuses(KEY, "x", 1)
        gate.state = state
        await ticks()
        assert not made.refuses(KEY, "x", 1), state
        await made.close()


async def test_cleared_when_redis_is_away_and_set_again_later() -> None:
    gate = Gate()
    made = flags(gate)
    made.note(KEY)
    await ticks()
    gate.away = True
    await ticks()
    assert not made.refuses(KEY, "x", 1)
    gate.away = False
    made.note(KEY)
    await ticks()
    assert made.refuses(KEY, "x", 1)
    await made.close()


async def test_an_unchecked_flag_is_not_used() -> None:
    now = [0.0]
    made = flags(Gate(), clock=lambda: now[0])
    made.note(KEY)
    await ticks()
    assert made.refuses(KEY, "x", 1)
    await made.close()
    made = flags(Gate(), clock=lambda: now[0])
    made.note(KEY)
    await asyncio.sleep(0.002)
    now[0] += 1.0
    assert not made.refuses(KEY, "x", 1)
    await made.close()


async def test_a_watch_that_fails_is_not_begun_again_with_each_answer() -> None:
    """Holders that take longer than the deadline: each try loads Redis, in every web process."""
    now = [0.0]
    gate = Gate()

    def too_slow() -> None:
        raise GateUnavailable("too many holders for one deadline")

    gate.while_reading = too_slow
    made = flags(gate, clock=lambda: now[0])
    tries = []
    for _ in range(2_000):  # 40 s, an answer with stock 0 each 20 ms
        made.note(KEY)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if gate.reads > len(tries):
            tries.append(now[0])
        now[0] += 0.02
    assert len(tries) <= 16
    assert 5 < tries[-1] - tries[-2] < 10
    gate.while_reading = lambda: None
    now[0] += 10
    made.note(KEY)
    await asyncio.sleep(0.002)
    assert made.refuses(KEY, "x", 1)
    await made.close()


async def test_a_watch_rests_longer_than_it_reads() -> None:
    gate = Gate()
    now = [0.0]

    def slow_and_in_vain() -> None:
        now[0] += 0.05
        gate.state = replace(EMPTY, version=gate.reads)

    gate.while_reading = slow_and_in_vain
    made = flags(gate, clock=lambda: now[0])
    made.note(KEY)
    await asyncio.sleep(0.1)  # enough for 20 reads with the pause between checks alone
    assert gate.reads == 1
    await made.close()

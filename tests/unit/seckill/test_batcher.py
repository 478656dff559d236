"""Gathering: sizes, slots, fairness between sales, the bound, the end."""

import asyncio

import pytest

from seckill.admission.batcher import Batcher, Overloaded


class Runs:
    """Records batches; each ends when `release` says so."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, list[int]]] = []
        self.open = asyncio.Event()

    async def run(self, activity_id: int, items: list[int]) -> None:
        self.batches.append((activity_id, items))
        await self.open.wait()


def batcher(runs: Runs, **changes: float) -> Batcher[int]:
    values = {"gather_s": 0.001, "batch_max": 4, "queue_max": 10, "slots": 2} | changes
    return Batcher(
        runs.run,
        gather_s=values["gather_s"],
        batch_max=int(values["batch_max"]),
        queue_max=int(values["queue_max"]),
        slots=int(values["slots"]),
    )


async def settle() -> None:
    await asyncio.sleep(0.02)


async def test_requests_of_a_moment_become_one_batch() -> None:
    runs = Runs()
    made = batcher(runs)
    for n in range(3):
        made.submit(1, n)
    assert runs.batches == []
    await settle()
    assert runs.batches == [(1, [0, 1, 2])]
    runs.open.set()
    await made.drain()
    assert (made.queued, made.running) == (0, 0)


async def test_full_batch_starts_without_waiting() -> None:
    runs = Runs()
    made = batcher(runs, gather_s=60.0)
    for n in range(4):
        made.submit(1, n)
    await asyncio.sleep(0)
    assert runs.batches == [(1, [0, 1, 2, 3])]
    runs.open.set()
    await made.drain()


async def test_batches_never_mix_sales_and_take_turns() -> None:
    runs = Runs()
    made = batcher(runs, slots=1, queue_max=100)
    for n in range(9):
        made.submit(1, n)
    made.submit(2, 100)
    await settle()
    assert len(runs.batches) == 1
    runs.open.set()
    await made.drain()
    sold = {sale: [n for a, items in runs.batches if a == sale for n in items] for sale in (1, 2)}
    assert sold == {1: list(range(9)), 2: [100]}
    assert [activity for activity, _ in runs.batches].index(2) < 3
    assert all(len(items) <= 4 for _, items in runs.batches)


async def test_slots_and_queue_are_bounded() -> None:
    runs = Runs()
    made = batcher(runs)
    for n in range(8):
        made.submit(1, n)
    await settle()
    assert (made.running, made.queued) == (2, 0)
    for n in range(10):
        made.submit(1, n)
    with pytest.raises(Overloaded):
        made.submit(1, 99)
    with pytest.raises(Overloaded):
        made.submit(2, 99)
    assert (made.running, made.queued) == (2, 10)
    runs.open.set()
    await made.drain()
    assert sum(len(items) for _, items in runs.batches) == 18


async def test_a_batch_that_raises_frees_its_slot() -> None:
    ran: list[int] = []

    async def run(activity_id: int, items: list[int]) -> None:
        ran.extend(items)
        if items == [0]:
            raise RuntimeError("a bug")

    made: Batcher[int] = Batcher(run, gather_s=0.001, batch_max=1, queue_max=10, slots=1)
    loop = asyncio.get_running_loop()
    seen: list[str] = []
    loop.set_exception_handler(lambda _, context: seen.append(str(context["exception"])))
    made.submit(1, 0)
    made.submit(1, 1)
    await made.drain()
    assert ran == [0, 1]


async def test_a_small_batch_waits_for_the_end_of_another_but_not_for_long() -> None:
    runs = Runs()
    made = batcher(runs, gather_s=0.05)
    for n in range(4):
        made.submit(1, n)
    await asyncio.sleep(0)
    made.submit(1, 4)
    await asyncio.sleep(0.1)
    assert len(runs.batches) == 1  # gathered, but another is under way

    made.submit(1, 5)
    await asyncio.sleep(0.3)
    assert runs.batches[1:] == [(1, [4, 5])]  # its patience is over

    made.submit(1, 6)
    await asyncio.sleep(0.1)
    runs.open.set()  # both end: what waited begins at once
    await asyncio.sleep(0.01)
    assert runs.batches[2:] == [(1, [6])]
    await made.drain()

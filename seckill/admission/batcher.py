"""Gathers single requests into batches of one activity, everything bounded (no I/O of its own).

A batch starts when it is full or its first request has waited for the gather time, as soon as one
of the few slots is free; while none is, the queue grows, so batches grow with the load. While
another batch runs, one that is not full waits for its end, at most four gather times more: a batch
costs Redis, broker and this process some milliseconds of CPU, whatever its size.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")
_PATIENCE = 4


class Overloaded(Exception):
    """The queue is full: say so at once, queue nothing."""


class Batcher(Generic[T]):
    """Calls `run(activity_id, items)` for gathered items; `run` must not raise.

    Args:
        run: processes one batch; a slot is taken until it returns.
        gather_s: how long the first item of a batch may wait for others.
        batch_max: items of one batch.
        queue_max: items that may wait in all.
        slots: batches that may run at a time.
    """

    def __init__(
        self,
        run: Callable[[int, list[T]], Awaitable[None]],
        *,
        gather_s: float,
        batch_max: int,
        queue_max: int,
        slots: int,
    ) -> None:
        self._run = run
        self._gather_s = gather_s
        self._batch_max = batch_max
        self._queue_max = queue_max
        self._free = slots
        self._queued = 0
        self._queues: dict[int, list[T]] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._patient: set[int] = set()  # gathered, waiting for the end of another batch
        self._ripe: deque[int] = deque()  # activities whose batch may start, fair in turn
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def queued(self) -> int:
        """Items that wait for a batch."""
        return self._queued

    @property
    def running(self) -> int:
        """Batches in flight."""
        return len(self._tasks)

    def submit(self, activity_id: int, item: T) -> None:
        """Queue one item of an activity.

        Raises:
            Overloaded: the queue is full.
        """
        if self._queued >= self._queue_max:
            raise Overloaded
        self._queued += 1
        queue = self._queues.get(activity_id)
        if queue is None:
            self._queues[activity_id] = [item]
            self._timers[activity_id] = asyncio.get_running_loop().call_later(
                self._gather_s, self._gathered, activity_id
            )
            return
        queue.append(item)
        if len(queue) == self._batch_max and activity_id in self._timers:
            self._ripen(activity_id)
            self._start_batches()

    def _gathered(self, activity_id: int) -> None:
        if self._tasks and activity_id not in self._patient:
            self._patient.add(activity_id)
            self._timers[activity_id] = asyncio.get_running_loop().call_later(
                _PATIENCE * self._gather_s, self._gathered, activity_id
            )
            return
        self._ripen(activity_id)
        self._start_batches()

    def _ripen(self, activity_id: int) -> None:
        self._timers.pop(activity_id).cancel()
        self._patient.discard(activity_id)
        self._ripe.append(activity_id)

    def _start_batches(self) -> None:
        while self._free and self._ripe:
            activity_id = self._ripe.popleft()
            queue = self._queues[activity_id]
            batch = queue[: self._batch_max]
            if len(queue) > len(batch):
                del queue[: self._batch_max]
                self._ripe.append(activity_id)
            else:
                del self._queues[activity_id]
            self._queued -= len(batch)
            self._free -= 1
            task = asyncio.get_running_loop().create_task(self._run_batch(activity_id, batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run_batch(self, activity_id: int, batch: list[T]) -> None:
        try:
            await self._run(activity_id, batch)
        finally:
            self._free += 1
            for waiting in tuple(self._patient):
                self._ripen(waiting)
            self._start_batches()

    async def drain(self) -> None:
        """Wait until nothing is queued and nothing runs. Submit nothing meanwhile."""
        while self._tasks or self._queued:
            if self._tasks:
                await asyncio.wait(set(self._tasks))
            else:
                await asyncio.sleep(self._gather_s)

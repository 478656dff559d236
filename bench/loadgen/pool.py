"""The connections of one run: opened before the clock starts, reopened when they break."""

import asyncio
import time
from typing import Protocol

from bench.loadgen.http1 import Connection, Response
from bench.loadgen.plan import Plan


class Driver(Protocol):
    """Decides what is sent. One driver a run."""

    def idle(self, connection: Connection) -> None:
        """A connection may send (called once for each at the start, and after each reopening)."""
        ...

    def answered(self, connection: Connection, response: Response, data: bytes) -> None:
        """An answer came; the connection is idle again."""
        ...

    def failed(self, connection: Connection, reason: str) -> None:
        """A request has no answer and never will: its connection is gone."""
        ...


class Pool:
    """`plan.connections` connections to one server."""

    def __init__(self, plan: Plan, driver: Driver) -> None:
        self._plan = plan
        self._driver = driver
        self._closing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections: set[Connection] = set()

    @property
    def in_flight(self) -> int:
        """Requests that wait for their answer."""
        return sum(connection.busy for connection in self.connections)

    async def open(self) -> None:
        """Open all connections; raises OSError when the server does not accept them."""
        for _ in range(self._plan.connections):
            await self._connect()

    def start(self) -> None:
        """Hand every connection to the driver."""
        for connection in list(self.connections):
            self._driver.idle(connection)

    async def watch(self) -> None:
        """Cut connections whose request is older than the plan allows; runs until cancelled."""
        limit_ns = int(self._plan.timeout_s * 1e9)
        while True:
            await asyncio.sleep(0.25)
            now = time.perf_counter_ns()
            for connection in list(self.connections):
                if connection.busy and now - connection.sent_ns > limit_ns:
                    connection.abort("no answer in time")

    async def settle(self) -> None:
        """Wait for the answers in flight, for as long as a request may take."""
        deadline = time.monotonic() + self._plan.timeout_s
        while self.in_flight and time.monotonic() < deadline:
            await asyncio.sleep(0.005)

    def close(self) -> None:
        """Cut everything."""
        self._closing = True
        for connection in list(self.connections):
            connection.abort("closed")

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: Connection(answered=self._driver.answered, lost=self._lost),
            self._plan.host,
            self._plan.port,
        )
        self.connections.add(connection)
        return connection

    def _lost(self, connection: Connection, reason: str) -> None:
        self.connections.discard(connection)
        if self._closing:
            return
        if connection.busy:
            connection.busy = False
            self._driver.failed(connection, reason)
        task = asyncio.ensure_future(self._reopen())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reopen(self) -> None:
        pause_s = 0.02
        while not self._closing:
            try:
                connection = await self._connect()
            except OSError:
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, 1.0)
            else:
                self._driver.idle(connection)
                return

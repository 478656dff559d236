"""TCP wires between the product and its servers that can go silent, lose answers, or be cut."""

import asyncio
import re
import socket
import struct
import threading
import time
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

HOST: Final = "127.0.0.1"
_CHUNK: Final = 65_536
_RESET: Final = struct.pack("ii", 1, 0)
_HEAD: Final = re.compile(rb"(GET|POST) (/[^ ?]*)[^ ]* HTTP/1\.[01]\r\n")


class Request(NamedTuple):
    """An HTTP request that went through a wire: when on the monotonic clock, and what."""

    at: float
    method: str
    path: str


@dataclass
class Wire:
    """One listening port in front of one server. Its fields belong to the loop's thread.

    `requests` is None where nobody asks what went through.
    """

    name: str
    upstream: int
    port: int = 0
    late_s: float = 0.0
    answers_lost: bool = False
    flowing: asyncio.Event = field(default_factory=asyncio.Event)
    writers: set[asyncio.StreamWriter] = field(default_factory=set)
    requests: list[Request] | None = None
    _server: asyncio.Server | None = None

    async def listen(self) -> None:
        """Take connections from now on."""
        self.flowing.set()
        self._server = await asyncio.start_server(self._connected, HOST, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def stop_listening(self) -> None:
        """Take no more connections."""
        if self._server is not None:
            self._server.close()

    async def _connected(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        try:
            server, forth = await asyncio.open_connection(HOST, self.upstream)
        except OSError:
            back.transport.abort()
            return
        pair = {back, forth}
        self.writers |= pair
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(client, forth, answers=False))
                group.create_task(self._pump(server, back, answers=True))
        except* OSError:
            pass
        finally:
            self.writers -= pair
            for writer in pair:
                writer.transport.abort()

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        while data := await source.read(_CHUNK):
            await self.flowing.wait()
            if self.late_s:
                await asyncio.sleep(self.late_s)
            if answers and self.answers_lost:
                continue
            if self.requests is not None and not answers:
                self._note(self.requests, data)
            sink.write(data)
            await sink.drain()
        raise ConnectionResetError  # the other direction ends with this one

    @staticmethod
    def _note(requests: list[Request], data: bytes) -> None:
        """A client sends a request at once: a head that two chunks share would be missed."""
        now = time.monotonic()
        requests += [
            Request(at=now, method=head[1].decode(), path=head[2].decode("ascii", "replace"))
            for head in _HEAD.finditer(data)
        ]

    def cut(self) -> None:
        """Reset every connection."""
        for writer in list(self.writers):
            # Without lingering the kernel sends a reset, not a polite end.
            with suppress(OSError):  # it has ended by itself just now
                writer.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, _RESET
                )
            writer.transport.abort()


class Wires:
    """All wires, on an event loop in a thread of their own.

    Args:
        upstreams: name → port of the server.
        listen_to: which of them speak HTTP, and shall be asked for their requests.
    """

    def __init__(self, upstreams: dict[str, int], *, listen_to: tuple[str, ...] = ()) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="wires", daemon=True)
        self._thread.start()
        self._wires: dict[str, Wire] = {}
        for name, port in upstreams.items():
            wire = Wire(name=name, upstream=port, requests=[] if name in listen_to else None)
            self._run(wire.listen())
            self._wires[name] = wire

    def port(self, name: str) -> int:
        """Return the port that leads to a server."""
        return self._wires[name].port

    def requests(self, name: str) -> list[Request]:
        """Return the requests that went through, oldest first."""
        return list(self._wires[name].requests or ())

    def silence(self, name: str) -> None:
        """Hold every byte, both ways, until `heal`; new connections are accepted and silent."""
        self._do(self._wires[name].flowing.clear)

    def lose_answers(self, name: str) -> None:
        """Let requests through and throw their answers away, until `heal` cuts them."""
        self._do(lambda: setattr(self._wires[name], "answers_lost", True))

    def slow_down(self, name: str, late_s: float) -> None:
        """Hold each chunk for a while, until `heal`."""
        self._do(lambda: setattr(self._wires[name], "late_s", late_s))

    def cut(self, name: str) -> None:
        """Reset every connection now."""
        self._do(self._wires[name].cut)

    def heal(self, name: str) -> None:
        """Let everything flow; what had lost answers is cut, what was held arrives late."""

        def mend() -> None:
            wire = self._wires[name]
            if wire.answers_lost:
                wire.cut()
            wire.answers_lost, wire.late_s = False, 0.0
            wire.flowing.set()

        self._do(mend)

    def heal_all(self) -> None:
        """Heal every wire."""
        for name in self._wires:
            self.heal(name)

    def close(self) -> None:
        """Cut everything, listen no more."""

        async def end() -> None:
            for wire in self._wires.values():
                wire.cut()
                wire.stop_listening()
            await asyncio.sleep(0)
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self._run(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def _do(self, call: Any) -> None:
        async def run() -> None:
            call()

        self._run(run())

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

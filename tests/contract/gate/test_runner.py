"""The two runners: scripts that were flushed, time-outs, outages, pub/sub."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis
from django.conf import settings

from inventory import keys, verbs
from inventory.contracts import ReserveCode
from inventory.errors import GateUnavailable
from inventory.gate import AsyncGate, Gate, gate
from inventory.holders import PIECE, read_holders
from inventory.lua import SCRIPTS
from tests.fixtures.gate import GateSale, wish
from tests.fixtures.redis_server import start_redis
from tests.fixtures.system import free_port


@pytest.fixture
def silent_server() -> Iterator[str]:
    """A server that takes connections and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield f"redis://127.0.0.1:{server.getsockname()[1]}/0"


def test_scripts_survive_script_flush_between_calls(new_sale) -> None:
    sale = new_sale(9)
    for user in ("ann", "bob"):
        sale.client.script_flush()
        made = sale.buy(user)
        sale.client.script_flush()
        sale.confirm(made)
    assert (sale.stock(), sale.opened()) == (7, {})


async def test_the_async_runner_survives_script_flush_too(new_sale) -> None:
    sale = new_sale(9)
    runner = AsyncGate(url=settings.REDIS_URL, timeout_s=20)
    request = wish("ann")
    call = verbs.reserve(activity_id=42, requests=[request], lease_owner="me", lease_ms=1)
    sale.client.script_flush()
    (reply,) = await runner.run(call)
    (repeat,) = await runner.run(call)
    assert (reply.code, repeat.code) == (ReserveCode.RESERVED, ReserveCode.REQUEST_REPLAYED)
    assert await runner.run(verbs.holders(activity_id=42, sku_id=7)) == sale.holders()
    (other,) = await runner.run(
        verbs.reserve(activity_id=42, requests=[wish("ann")], lease_owner="me", lease_ms=1)
    )
    assert other.code is ReserveCode.ALREADY_RESERVED  # through the follow-up call
    await runner.close()


def test_no_answer_in_time_is_unavailable_and_not_repeated(silent_server) -> None:
    runner = Gate(url=silent_server, cluster=False, timeout_s=0.2)
    started = time.monotonic()
    with pytest.raises(GateUnavailable, match="read: TimeoutError"):
        runner.run(verbs.holders(activity_id=42, sku_id=7))
    assert time.monotonic() - started < 1.5
    runner.close()


async def test_the_async_deadline_holds(silent_server) -> None:
    runner = AsyncGate(url=silent_server, timeout_s=0.1)
    started = time.monotonic()
    with pytest.raises(GateUnavailable, match="TimeoutError"):
        await runner.run(verbs.holders(activity_id=42, sku_id=7))
    assert time.monotonic() - started < 1.5
    await runner.close()


async def test_nobody_there_is_unavailable() -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    sync, other = Gate(url=url, cluster=False), AsyncGate(url=url)
    with pytest.raises(GateUnavailable):
        sync.run(verbs.holders(activity_id=42, sku_id=7))
    with pytest.raises(GateUnavailable):
        await other.run(verbs.holders(activity_id=42, sku_id=7))
    sync.close()
    await other.close()


class ReplyDropper:
    """A proxy before Redis that cuts the connection instead of handing on one EVALSHA's reply."""

    def __init__(self) -> None:
        target = urlsplit(settings.REDIS_URL)
        self.upstream = (target.hostname, target.port)
        self.server = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self.server.getsockname()[1]}{target.path}"
        self.dropped = False
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                client, _ = self.server.accept()
            except OSError:
                return  # closed
            upstream = socket.create_connection(self.upstream)
            armed = threading.Event()
            for source, target, downstream in (
                (client, upstream, False),
                (upstream, client, True),
            ):
                threading.Thread(
                    target=self.pump, args=(source, target, armed, downstream), daemon=True
                ).start()

    def pump(
        self,
        source: socket.socket,
        target: socket.socket,
        armed: threading.Event,
        downstream: bool,
    ) -> None:
        try:
            while data := source.recv(65_536):
                if not downstream and b"EVALSHA" in data and not self.dropped:
                    armed.set()
                if downstream and armed.is_set() and not self.dropped:
                    self.dropped = True
                    break
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@pytest.fixture
def reply_dropper() -> Iterator[ReplyDropper]:
    proxy = ReplyDropper()
    yield proxy
    proxy.server.close()


def test_an_answer_that_is_lost_once_is_not_repeated_by_the_client(new_sale, reply_dropper) -> None:
    """Case 34: a proxy drops the reply of one EVALSHA; the caller decides, with the same ids."""
    sale = new_sale(5)
    runner = Gate(url=reply_dropper.url, cluster=False, timeout_s=20)
    request = wish("ann")
    call = verbs.reserve(activity_id=42, requests=[request], lease_owner="me", lease_ms=1_000)
    sale.reserve()  # the script is loaded: its first EVALSHA through the proxy runs
    with pytest.raises(GateUnavailable):
        runner.run(call)
    assert reply_dropper.dropped
    assert sale.stock() == 4

    (again,) = runner.run(call)

    assert again.code is ReserveCode.REQUEST_REPLAYED
    assert again.reservation.reservation_id == request.reservation_id
    assert (sale.stock(), sale.holders()) == (4, {"ann": request.reservation_id})
    runner.close()


def test_a_full_redis_refuses_before_anything_is_written(private_redis) -> None:
    client = redis.Redis.from_url(private_redis, decode_responses=True)
    sale = GateSale(client=client, gate=Gate(url=private_redis, cluster=False))
    sale.load(5)
    sale.open()
    sale.buy("ann")
    client.config_set("maxmemory", 1)
    with pytest.raises(GateUnavailable, match="OOM"):
        sale.reserve(wish("bob"), wish("cat"))
    client.config_set("maxmemory", 0)
    assert (sale.stock(), set(sale.holders())) == (4, {"ann"})
    sale.gate.close()
    client.close()


@pytest.fixture
def private_redis(tmp_path: Path) -> Iterator[str]:
    """The URL of a server of the test's own."""
    port = free_port()
    server = start_redis(tmp_path, port)
    yield f"redis://127.0.0.1:{port}/0"
    server.terminate()
    server.wait(10)


async def test_what_is_published_reaches_a_subscriber(redis_client) -> None:
    runner = AsyncGate(url=settings.REDIS_URL)
    stream = runner.subscribe(keys.EVENTS_PATTERN)
    assert await asyncio.wait_for(anext(stream), 20) == ("", b"")  # the subscription stands
    await asyncio.to_thread(gate().publish, keys.events_channel(42), b"hello")
    assert await asyncio.wait_for(anext(stream), 20) == (keys.events_channel(42), b"hello")
    await stream.aclose()
    await runner.close()


def test_every_script_says_what_it_is() -> None:
    names = set(SCRIPTS)
    assert {name for name in names if not hasattr(verbs, name)} == set()
    for name, script in SCRIPTS.items():
        head = script.source.split("\nlocal ", 1)[0]
        assert head.startswith(f"-- {name}: ")
        for part in ("KEYS", "ARGV", "RETURNS", "INVARIANT"):
            assert f"-- {part}" in head, (name, part)
        # All keys come in KEYS: no script builds a name.
        assert "seckill:" not in script.source


def test_one_process_shares_one_runner() -> None:
    assert gate() is gate()


async def test_many_holders_are_read_in_pieces(new_sale, monkeypatch) -> None:
    sale = new_sale(9)
    users = {f"user-{number}": f"rsv_{number}" for number in range(5 * PIECE)}
    sale.client.hset(keys.buyers(42, 7), mapping=users)
    runner = AsyncGate(url=settings.REDIS_URL, timeout_s=20)
    pieces = []

    def piece(**args):
        pieces.append(args["cursor"])
        return real(**args)

    real = verbs.holders_piece
    monkeypatch.setattr(verbs, "holders_piece", piece)

    assert await read_holders(runner, activity_id=42, sku_id=7) == set(users)
    assert len(pieces) >= 5
    assert await read_holders(runner, activity_id=42, sku_id=8) == set()
    await runner.close()

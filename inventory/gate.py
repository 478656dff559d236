"""The two runners of the gate's calls, the only importers of redis for the gate.

A call that did not answer in time has an unknown effect: the runners never repeat one by themselves
(the client's own retries are off), they raise `GateUnavailable` and the caller decides.
"""

import os
import re
from collections.abc import AsyncIterator
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit, urlunsplit

import hiredis
import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.cluster
from django.conf import settings
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import (
    ClusterDownError,
    ConnectionError,
    MasterDownError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    TimeoutError,
)
from redis.retry import Retry

from inventory.call import Call
from inventory.errors import GateScriptError, GateUnavailable
from inventory.lua import SCRIPTS

T = TypeVar("T")

# Loops may wait longer than a buyer: their calls carry hundreds of reservations.
SYNC_TIMEOUT_S: Final = 2.0
ONE_SERVER: Final = ""  # the name of a Redis that is no cluster
# A reservation that changes hands between each two calls; practically never more than one.
MAX_FOLLOW_UPS: Final = 3

_UNAVAILABLE: Final = (
    ConnectionError,  # also BusyLoadingError: Redis reads its file
    TimeoutError,
    OutOfMemoryError,
    ReadOnlyError,
    ClusterDownError,
    MasterDownError,
    RedisClusterException,
    OSError,
)
# All that the client raises; its cluster's own exception is no RedisError.
FAILURES: Final = (redis.RedisError, RedisClusterException, OSError)
# Redis can take no writes just now. From inside a script 6.2 wraps these in a text of its own that
# the client has no classes for; all come at the script's first write: nothing was written.
_REFUSES_WRITES: Final = re.compile(
    r"(?:^|-)(OOM|MISCONF|NOREPLICAS|READONLY|LOADING|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|BUSY) "
)


def _failed(error: Exception, call: Call[Any]) -> Exception:
    """Map an exception of the client to ours."""
    what = call.script or "read"
    if isinstance(error, _UNAVAILABLE):
        return GateUnavailable(f"{what}: {type(error).__name__}")
    if refusal := _REFUSES_WRITES.search(str(error)):
        return GateUnavailable(f"{what}: {refusal[1]}")
    return GateScriptError(f"{what}: {error}")


def _options(timeout_s: float) -> dict[str, Any]:
    return {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "decode_responses": True,
        "protocol": 2,
        "client_name": "seckill-gate",
    }


class _PackingConnection(redis.asyncio.Connection):
    """Packs commands in C: a batch of 64 reservations has 700 arguments, 2 ms of Python's time."""

    def pack_command(self, *args: Any) -> list[bytes]:
        """Return one command in the wire format."""
        return [hiredis.pack_command(args)]


class Gate:
    """Blocking runner, for loops, commands and services. Safe to share between threads."""

    def __init__(self, *, url: str, cluster: bool, timeout_s: float = SYNC_TIMEOUT_S) -> None:
        options = _options(timeout_s) | {"retry": Retry(NoBackoff(), 0)}
        self._is_cluster = cluster
        # The client types its commands only in part.
        self._client: Any = (
            redis.cluster.RedisCluster.from_url(url, **options)
            if cluster
            else redis.Redis.from_url(url, **options)
        )

    def run(self, call: Call[T]) -> T:
        """Run one call.

        Raises:
            GateUnavailable: no answer in time; what happened is unknown.
            GateScriptError: the script refused its arguments; nothing was written.
        """
        for _ in range(MAX_FOLLOW_UPS + 1):
            try:
                raw = self._send(call)
            except FAILURES as error:
                raise _failed(error, call) from error
            following = call.follow_up(raw) if call.follow_up else None
            if following is None:
                return call.parse(raw)
            call = following
        raise GateUnavailable(f"{call.script}: the reservations named kept changing")

    def _send(self, call: Call[Any]) -> Any:
        if not call.script:
            if not call.commands:
                return []
            pipeline = self._client.pipeline(transaction=False)
            for command in call.commands:
                pipeline.execute_command(*command)
            return pipeline.execute()
        script = SCRIPTS[call.script]
        try:
            return self._client.execute_command(
                "EVALSHA", script.sha, len(call.keys), *call.keys, *call.args
            )
        except NoScriptError:  # SCRIPT FLUSH, a restart or a new primary: EVAL also loads it
            return self._client.execute_command(
                "EVAL", script.source, len(call.keys), *call.keys, *call.args
            )

    def publish(self, channel: str, payload: bytes) -> None:
        """Tell whoever listens on a channel; nobody need listen.

        Raises:
            GateUnavailable: Redis did not answer.
        """
        try:
            self._client.execute_command("PUBLISH", channel, payload)
        except FAILURES as error:
            raise GateUnavailable(f"publish: {type(error).__name__}") from error

    def servers(self) -> list[str]:
        """Return the names of all servers that hold keys: a cluster's primaries, as last heard."""
        if not self._is_cluster:
            return [ONE_SERVER]
        return sorted(str(node.name) for node in self._client.get_primaries())

    def answering(self) -> list[str]:
        """Return the names of the servers that answer now; [] when none does."""
        found = []
        for server in self.servers():
            try:
                self._client.ping(**self._where(server))
            except (*FAILURES, GateUnavailable):
                continue
            found.append(server)
        return found

    def server_facts(self, server: str) -> tuple[dict[str, str], int]:
        """Return the settings of a server that readiness asks for, and its TIME in epoch ms.

        Raises:
            GateUnavailable: Redis did not answer.
        """
        try:
            where = self._where(server)
            config = {
                name: dict(self._client.config_get(name, **where)).get(name, "")
                for name in ("maxmemory-policy", "appendonly")
            }
            return config, self._time_ms(where)
        except FAILURES as error:
            raise GateUnavailable(f"readiness: {type(error).__name__}: {error}") from error

    def server_of(self, key: str) -> str:
        """Return the name of the server that holds a key; the one server when it is no cluster.

        Raises:
            GateUnavailable: Redis did not answer.
        """
        if not self._is_cluster:
            return ONE_SERVER
        try:
            return str(self._client.get_node_from_key(key).name)
        except FAILURES as error:
            raise GateUnavailable(f"cluster: {type(error).__name__}: {error}") from error

    def server_times(self, server: str) -> tuple[int, int]:
        """Return when a server's process began, to the second, and its TIME; both epoch ms.

        Raises:
            GateUnavailable: Redis did not answer.
        """
        try:
            where = self._where(server)
            up_s = int(self._client.info("server", **where)["uptime_in_seconds"])
            now_ms = self._time_ms(where)
        except FAILURES as error:
            raise GateUnavailable(f"server: {type(error).__name__}: {error}") from error
        return (now_ms // 1000 - up_s) * 1000, now_ms

    def _time_ms(self, where: dict[str, Any]) -> int:
        seconds, micros = self._client.time(**where)
        return int(seconds) * 1000 + int(micros) // 1000

    def _where(self, server: str) -> dict[str, Any]:
        """Return the client's option that sends a command to one server."""
        if server == ONE_SERVER:
            return {}
        node = self._client.get_node(node_name=server)
        if node is None:  # without a target the client would ask whichever server it likes
            raise GateUnavailable(f"{server} has left the cluster")
        return {"target_nodes": node}

    def close(self) -> None:
        """Close all connections."""
        self._client.close()


class AsyncGate:
    """Runner of one event loop, with the short deadline of a buyer's request."""

    def __init__(
        self, *, url: str = "", cluster: bool | None = None, timeout_s: float | None = None
    ) -> None:
        self._url = url or settings.REDIS_URL
        deadline = settings.SECKILL_GATE_DEADLINE_MS / 1000 if timeout_s is None else timeout_s
        options = _options(deadline) | {"retry": AsyncRetry(NoBackoff(), 0)}
        self._is_cluster = settings.REDIS_CLUSTER if cluster is None else cluster
        self._client: Any = (
            redis.asyncio.cluster.RedisCluster.from_url(self._url, **options)
            if self._is_cluster
            else redis.asyncio.Redis.from_url(
                self._url, **options, connection_class=_PackingConnection
            )
        )

    async def run(self, call: Call[T]) -> T:
        """Run one call.

        Raises:
            GateUnavailable: no answer within the deadline; what happened is unknown.
            GateScriptError: the script refused its arguments; nothing was written.
        """
        for _ in range(MAX_FOLLOW_UPS + 1):
            try:
                raw = await self._send(call)
            except FAILURES as error:
                raise _failed(error, call) from error
            following = call.follow_up(raw) if call.follow_up else None
            if following is None:
                return call.parse(raw)
            call = following
        raise GateUnavailable(f"{call.script}: the reservations named kept changing")

    async def _send(self, call: Call[Any]) -> Any:
        if not call.script:
            if not call.commands:
                return []
            pipeline = self._client.pipeline(transaction=False)
            for command in call.commands:
                pipeline.execute_command(*command)
            return await pipeline.execute()
        script = SCRIPTS[call.script]
        try:
            return await self._client.execute_command(
                "EVALSHA", script.sha, len(call.keys), *call.keys, *call.args
            )
        except NoScriptError:
            return await self._client.execute_command(
                "EVAL", script.source, len(call.keys), *call.keys, *call.args
            )

    async def subscribe(self, *patterns: str) -> AsyncIterator[tuple[str, bytes]]:
        """Yield (channel, payload) of all channels that match; ends with GateUnavailable.

        One connection for the process: subscribe once (`keys.EVENTS_PATTERN`) and share it.

        Yields:
            Each message published from now on; what was published before is not repeated. The first
            item is ("", b""): the subscription stands, snapshots read from here on miss nothing.
        """
        client = redis.asyncio.Redis.from_url(
            await self._listening_url(),
            protocol=2,
            socket_connect_timeout=SYNC_TIMEOUT_S,
            health_check_interval=10,
            retry=AsyncRetry(NoBackoff(), 0),
        )
        try:
            async with client.pubsub() as pubsub:
                await pubsub.psubscribe(*patterns)
                waiting = len(patterns)
                async for message in pubsub.listen():
                    if message["type"] == "psubscribe":
                        waiting -= 1
                        if waiting == 0:
                            yield "", b""
                    elif message["type"] == "pmessage":
                        yield message["channel"].decode(), message["data"]
        except FAILURES as error:
            raise GateUnavailable(f"subscribe: {type(error).__name__}") from error
        finally:
            await client.aclose()

    async def _listening_url(self) -> str:
        """Return the address of a server to listen at: what any of a cluster is told, all are."""
        if not self._is_cluster:
            return self._url
        try:
            await self._client.initialize()
        except FAILURES as error:
            raise GateUnavailable(f"subscribe: {type(error).__name__}") from error
        node = self._client.get_random_node()  # another one each time: this one may be down
        parts = urlsplit(self._url)
        user, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{user}{at}{node.host}:{node.port}"))

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()


_gate: tuple[int, str, Gate] | None = None


def gate() -> Gate:
    """Return the process's runner, made at first use and again after a fork or a change of URL.

    Raises:
        GateUnavailable: no server of the cluster answers: its client connects when it is made.
    """
    global _gate
    pid, url = os.getpid(), settings.REDIS_URL
    if _gate is None or _gate[:2] != (pid, url):
        try:
            _gate = (pid, url, Gate(url=url, cluster=settings.REDIS_CLUSTER))
        except FAILURES as error:
            raise GateUnavailable(f"cluster: {type(error).__name__}: {error}") from error
    return _gate[2]

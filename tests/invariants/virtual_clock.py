"""Both deciding clocks, PostgreSQL's and Redis TIME, stand still until a test turns them.

PostgreSQL finds `now()` and its kin in a schema before pg_catalog, the gate's scripts read a key
instead of TIME. So minutes pass without a sleep, and the same steps always meet the same instants.
Only column defaults still see the real clock; the virtual one starts an hour ahead of them.
"""

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
import redis
from django.conf import settings
from django.db import connection

from inventory import reads
from inventory.lua import SCRIPTS, Script
from tests.fixtures.sql import execute

AHEAD_MS: Final = 3_600_000
_KEY: Final = "virtual_clock:ms"
_TIME: Final = "redis.call('TIME')"
_LUA: Final = f"""(function()
  local ms = tonumber(redis.call('GET', '{_KEY}'))
  return {{ math.floor(ms / 1000), ms % 1000 * 1000 }}
end)()"""
_FUNCTIONS: Final = ("now", "clock_timestamp", "statement_timestamp", "transaction_timestamp")


class VirtualClock:
    """The instant, in epoch ms, that both stores take for the present."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self.now_ms = 0

    def restart(self) -> None:
        """Begin anew, an hour ahead of the real clock."""
        self._set(time.time_ns() // 1_000_000 + AHEAD_MS)

    def advance(self, seconds: float) -> None:
        self._set(self.now_ms + round(seconds * 1000))

    def forget(self) -> None:
        """Empty Redis; the next example starts the clock anew."""
        self._client.flushdb()

    def _set(self, now_ms: int) -> None:
        self.now_ms = now_ms
        execute("UPDATE virtual.clock SET at = to_timestamp(%s / 1000.0)", now_ms)
        self._client.set(_KEY, now_ms)


@contextmanager
def virtual_clock() -> Iterator[VirtualClock]:
    """Put the virtual clock under both stores; everything is as before when this ends."""
    name = connection.settings_dict["NAME"]
    assert name.startswith("test_"), f"not on {name}: only a test's database gets another clock"
    execute("DROP SCHEMA IF EXISTS virtual CASCADE")  # of a run that was killed
    execute("CREATE SCHEMA virtual CREATE TABLE clock (at timestamptz NOT NULL)")
    execute("INSERT INTO virtual.clock VALUES (now())")
    for name in _FUNCTIONS:
        execute(
            f"CREATE FUNCTION virtual.{name}() RETURNS timestamptz LANGUAGE sql STABLE"  # noqa: S608
            " AS 'SELECT at FROM virtual.clock'"
        )
    client = redis.Redis.from_url(settings.REDIS_URL)
    clock = VirtualClock(client)
    try:
        with pytest.MonkeyPatch.context() as patch:
            options: dict[str, Any] = connection.settings_dict["OPTIONS"]
            ours = " -c search_path=virtual,pg_catalog,public -c synchronous_commit=off"
            patch.setitem(options, "options", options["options"] + ours)
            connection.close()  # the next one has the path
            for name, script in SCRIPTS.items():
                if _TIME in script.source:
                    patch.setitem(SCRIPTS, name, _turned(script))
            patch.setattr(reads, "time_ms", lambda _: clock.now_ms)
            yield clock
    finally:
        client.close()
        connection.close()
        execute("DROP SCHEMA virtual CASCADE")


def _turned(script: Script) -> Script:
    source = script.source.replace(_TIME, _LUA)
    sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    return Script(source=source, sha=sha)

"""Whether the gate's Redis may carry a sale: durable, never evicting, its clock right."""

import time
from dataclasses import dataclass
from typing import Final

from django.db import DatabaseError, InterfaceError, connection

from inventory.errors import GateUnavailable
from inventory.gate import ONE_SERVER, gate

MAX_CLOCK_SKEW_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Readiness:
    """What was found at the servers of the gate, each text with what to do."""

    wrong: list[str]  # set up wrongly
    away: list[str]  # no answer
    servers: int

    @property
    def blocking(self) -> list[str]:
        """What keeps every sale from selling: a shard that is away stops its own sales only."""
        return self.wrong + (self.away if len(self.away) == self.servers else [])


def look() -> Readiness:
    """Ask every server. Cost: three Redis commands and one statement for each."""
    try:
        servers = gate().servers()
    except GateUnavailable as error:
        return Readiness([], [_away("Redis", error)], 1)
    wrong, away = [], []
    for server in servers:
        name = "Redis" if server == ONE_SERVER else f"Redis at {server}"
        try:
            wrong += _wrong_at(server, name)
        except GateUnavailable as error:
            away.append(_away(name, error))
    return Readiness(wrong, away, len(servers))


def problems() -> list[str]:
    """Return all that is wrong or away; empty when every sale may sell."""
    found = look()
    return found.wrong + found.away


def _wrong_at(server: str, name: str) -> list[str]:
    started = time.monotonic()
    config, redis_ms = gate().server_facts(server)
    found = []
    if config["maxmemory-policy"] != "noeviction":
        found.append(
            f"{name} evicts keys (maxmemory-policy {config['maxmemory-policy']}): set noeviction"
        )
    if config["appendonly"] != "yes":
        found.append(f"{name} would forget reservations at a restart: set appendonly yes")
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT extract(epoch FROM clock_timestamp()) * 1000")
            database_ms = int(cursor.fetchone()[0])
    except (DatabaseError, InterfaceError) as error:
        return [*found, f"the database's clock cannot be read: {type(error).__name__}"]
    # What the reads themselves took is no skew.
    elapsed_ms = int((time.monotonic() - started) * 1000)
    skew_ms = database_ms - redis_ms
    if not -MAX_CLOCK_SKEW_MS < skew_ms < MAX_CLOCK_SKEW_MS + elapsed_ms:
        found.append(
            f"the clocks of {name} and PostgreSQL differ by {skew_ms} ms: synchronise them"
        )
    return found


def _away(name: str, error: GateUnavailable) -> str:
    return f"{name} does not answer ({error}): check REDIS_URL and the server"

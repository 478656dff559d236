"""Whether the gate's Redis may carry a sale: durable, never evicting, its clock right."""

import time
from typing import Final

from django.db import DatabaseError, InterfaceError, connection

from inventory.errors import GateUnavailable
from inventory.gate import ONE_SERVER, gate

MAX_CLOCK_SKEW_MS: Final = 1_000


def problems() -> list[str]:
    """Return what speaks against selling now, each with what to do; empty when ready.

    Cost: three Redis commands and one statement for each server (a cluster's primaries).
    """
    try:
        servers = gate().servers()
    except GateUnavailable as error:
        return [_away(error)]
    return [problem for server in servers for problem in _problems_of(server)]


def _problems_of(server: str) -> list[str]:
    name = "Redis" if server == ONE_SERVER else f"Redis at {server}"
    try:
        started = time.monotonic()
        config, redis_ms = gate().server_facts(server)
    except GateUnavailable as error:
        return [_away(error)]
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


def _away(error: GateUnavailable) -> str:
    return f"Redis does not answer ({error}): check REDIS_URL and the server"

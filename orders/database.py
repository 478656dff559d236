"""The few lines that every transaction of orders shares: its limits, its clock, its rows.

Arrays are passed with `%b` placeholders: psycopg writes a list of 128 texts in binary three to ten
times faster than as text.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import connection


def begin() -> datetime:
    """Set the limits of the running transaction and read the clock that decides.

    Returns:
        The database's clock, to the millisecond, so that rows and bodies say the same instant.

    Cost: one round trip.
    """
    ((_, _, now),) = fetch(
        "SELECT set_config('lock_timeout', %s, true), set_config('statement_timeout', %s, true),"
        " date_trunc('milliseconds', clock_timestamp())",
        (f"{settings.SECKILL_LOCK_TIMEOUT_MS}ms", f"{settings.SECKILL_STATEMENT_TIMEOUT_MS}ms"),
    )
    return now  # type: ignore[no-any-return]


def allow_long_reads() -> None:
    """Let statements of the running transaction take 10 minutes: they read all that ever was.

    Right after a sale the planner still believes in near-empty tables: its nested loops over 40 000
    rows took over a minute, hash joins take a second.
    """
    execute(
        "SELECT set_config('statement_timeout', '10min', true),"
        " set_config('enable_nestloop', 'off', true)"
    )


def fetch(sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Run one statement and return its rows."""
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def execute(sql: str, params: Sequence[Any] = ()) -> int:
    """Run one statement without rows and return how many rows it changed."""
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        changed: int = cursor.rowcount
        return changed

"""How long a unit of work waited until it had a PostgreSQL connection, and how many have one.

Connections belong to threads here and the threads are bounded: waiting for a connection is waiting
for a thread (web), or opening one (loops). So `pg_pool_acquired` at its limit means that the next
unit waits.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import Error as DatabaseFailure
from django.db import connection

from messaging.metrics import POOL_ACQUIRED, POOL_WAIT


def acquire(pool: str) -> float:
    """Make sure that this thread has a connection; observe and return the seconds it took.

    A database that does not answer is left to the unit's first statement. Cost: a microsecond when
    the connection is there.

    Args:
        pool: `consumer`, `sender` or `web`.
    """
    started = time.monotonic()
    try:
        connection.ensure_connection()
    except DatabaseFailure:
        return time.monotonic() - started
    waited_s = time.monotonic() - started
    POOL_WAIT.labels(pool).observe(waited_s)
    return waited_s


@contextmanager
def holding(pool: str, *, asked_at: float) -> Iterator[None]:
    """Count a unit that got its thread, for as long as it holds it.

    Args:
        pool: `consumer`, `sender` or `web`.
        asked_at: when it began to wait, on the monotonic clock.
    """
    POOL_WAIT.labels(pool).observe(time.monotonic() - asked_at)
    POOL_ACQUIRED.labels(pool).inc()
    try:
        yield
    finally:
        POOL_ACQUIRED.labels(pool).dec()

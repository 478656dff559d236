"""What a process needs from outside, each asked in a few ms: an empty text, or what is wrong.

The texts go to `/readyz` and to the preflight table: they name what to do, never a secret.
"""

import socket
from typing import Final
from urllib.parse import urlsplit

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection

from inventory import readiness
from messaging import partitions as messaging_partitions

PARTITION_DAYS_RED: Final = 3
_CONNECT_S: Final = 1.0


def database() -> str:
    """Ask PostgreSQL for a row."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except (DatabaseError, InterfaceError) as error:
        return f"PostgreSQL does not answer: {_first_line(error)}"
    return ""


def partitions() -> str:
    """Inbox and outbox must have their days ahead."""
    try:
        left = messaging_partitions.days_left()
    except (DatabaseError, InterfaceError) as error:
        return f"partitions cannot be read: {_first_line(error)}"
    if left < PARTITION_DAYS_RED:
        return f"partitions for {left} days only: run manage.py ensure_partitions"
    return ""


def redis() -> str:
    """The gate's Redis: reachable, durable, never evicting, its clock right."""
    return "; ".join(readiness.problems())


def broker_port() -> str:
    """The broker's proxy must take connections."""
    if settings.ROCKETMQ_ENDPOINTS == "memory":
        return ""
    first = settings.ROCKETMQ_ENDPOINTS.replace(",", ";").split(";")[0]
    address = urlsplit(first if "//" in first else f"//{first}")
    try:
        with socket.create_connection(
            (address.hostname or "", address.port or 8081), timeout=_CONNECT_S
        ):
            return ""
    except (OSError, ValueError) as error:
        return f"the broker's proxy at {first} takes no connection: {error}"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]

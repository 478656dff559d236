"""What a process needs from outside, each asked in a few ms: what is wrong, or nothing.

The texts go to `/readyz` and to the preflight table: they name what to do, never a secret.
"""

import socket
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection

from inventory import readiness
from messaging import partitions as messaging_partitions
from seckill import warmth

PARTITION_DAYS_RED: Final = 3
_CONNECT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class State:
    """`problem` keeps this process from serving, `degraded` only some sales or one of several."""

    problem: str = ""
    degraded: str = ""

    def __str__(self) -> str:
        return self.problem or self.degraded


def database() -> State:
    """Ask PostgreSQL for a row."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except (DatabaseError, InterfaceError) as error:
        return State(f"PostgreSQL does not answer: {_first_line(error)}")
    return State()


def partitions() -> State:
    """Inbox and outbox must have their days ahead."""
    try:
        left = messaging_partitions.days_left()
    except (DatabaseError, InterfaceError) as error:
        return State(f"partitions cannot be read: {_first_line(error)}")
    if left < PARTITION_DAYS_RED:
        return State(f"partitions for {left} days only: run manage.py ensure_partitions")
    return State()


def redis() -> State:
    """The gate's Redis: reachable, durable, never evicting, its clock right."""
    found = readiness.look()
    if found.blocking:
        return State("; ".join(found.wrong + found.away))
    return State(degraded="; ".join(found.away))


def broker_port() -> State:
    """A proxy of the broker must take connections."""
    if settings.ROCKETMQ_ENDPOINTS == "memory":
        return State()
    endpoints = [e for e in settings.ROCKETMQ_ENDPOINTS.replace(",", ";").split(";") if e]
    away = [problem for endpoint in endpoints if (problem := _takes_no_connection(endpoint))]
    if len(away) == len(endpoints):
        return State("; ".join(away))
    return State(degraded="; ".join(away))


def warm() -> State:
    """This web process has opened its connections and read its rules."""
    cold = warmth.cold()
    return State(f"not warm yet: {', '.join(sorted(cold))}" if cold else "")


def _takes_no_connection(endpoint: str) -> str:
    address = urlsplit(endpoint if "//" in endpoint else f"//{endpoint}")
    try:
        with socket.create_connection(
            (address.hostname or "", address.port or 8081), timeout=_CONNECT_S
        ):
            return ""
    except (OSError, ValueError) as error:
        return f"the broker's proxy at {endpoint} takes no connection: {error}"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]

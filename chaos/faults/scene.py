"""What faults act on: the machine, and the sale of the seed."""

import threading
from dataclasses import dataclass, field
from typing import Any

import psycopg

from chaos.machine import Machine
from chaos.plan import PlannedFault


@dataclass(kw_only=True)
class ArmedFault:
    """A fault that waits in the payment provider for a call.

    Args:
        fault: as planned.
        at: when it was armed, on the monotonic clock.
        settled: how many of the book's entries were announced then.
        used: whether a call met it; None = nobody has looked yet.
    """

    fault: PlannedFault
    at: float
    settled: int = 0
    used: bool | None = None

    @property
    def operation(self) -> str:
        """Which calls it strikes."""
        return self.fault.target.partition(":")[0]


@dataclass
class Scene:
    """Where a seed plays.

    Args:
        machine: the running system.
        activity_id: the sale.
        sku_ids: its SKUs.
        redis_returned_ms: when Redis came back with less than it had, epoch ms; 0 = never.
        copy_taken_ms: how old its copy was, epoch ms.
        armed: what waits in the payment provider, oldest first.
        heavy: servers are stopped and started by one fault at a time.
    """

    machine: Machine
    activity_id: int
    sku_ids: tuple[int, ...]
    redis_returned_ms: int = 0
    copy_taken_ms: int = 0
    armed: list[ArmedFault] = field(default_factory=list)
    heavy: threading.Lock = field(default_factory=threading.Lock)

    def sql(self, query: str, *args: Any) -> list[tuple[Any, ...]]:
        """Run a statement past the wires, as the cluster's owner."""
        postgres: Any = self.machine.stack.service("postgres")
        with psycopg.connect(postgres.url(), autocommit=True, connect_timeout=3) as db:
            cursor = db.execute(query, args)
            return cursor.fetchall() if cursor.description else []

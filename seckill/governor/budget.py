"""How many order transactions may run at a time (no I/O).

The database bears so many; thirty in a hundred of them stay free for payments, queries,
compensation and people. What is left is shared by the processes of the order group.
"""

from dataclasses import dataclass
from typing import Final

SHARE_FOR_ORDERS: Final = 0.7


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """Order transactions at a time: in all, and for each process."""

    total: int
    per_instance: int


def budget(*, safe_transactions: int, instances: int, most_per_instance: int) -> Budget:
    """Share what the database bears.

    Args:
        safe_transactions: transactions at a time beyond which it only gets slower
            (`manage.py calibrate_budget`).
        instances: live processes of the order group.
        most_per_instance: loops that a process has at most.

    Returns:
        At least one for each process: a group that lives works.
    """
    instances = max(1, instances)
    total = int(safe_transactions * SHARE_FOR_ORDERS + 1e-9)
    per_instance = max(1, min(total // instances, most_per_instance))
    return Budget(total=max(1, total), per_instance=per_instance)

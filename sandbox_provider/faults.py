"""Bad days on request: armed over /admin/faults, or for one call by the header X-Sandbox-Fault.

- create_payment, refund: slow (answers late), timeout_after (done, never answered), error_after
  (done, 500), error_before (nothing done, 500), pending (202, done after delay_ms), late_accept
  (never answered, visible and done only after delay_ms), decline (refused)
- query_payment, query_refund: not_found (404 although it exists), error_before, slow
- webhook: duplicate (delivered twice), late (after delay_ms), hold (after the next one: out of
  order), drop, forge (bad signature), stale (old timestamp)
"""

from dataclasses import dataclass
from typing import Final

CALLS: Final = frozenset(
    {"slow", "timeout_after", "error_after", "error_before", "pending", "late_accept", "decline"}
)
KNOWN: Final[dict[str, frozenset[str]]] = {
    "create_payment": CALLS,
    "refund": CALLS,
    "query_payment": frozenset({"not_found", "error_before", "slow"}),
    "query_refund": frozenset({"not_found", "error_before", "slow"}),
    "webhook": frozenset({"duplicate", "late", "hold", "drop", "forge", "stale"}),
}


@dataclass(kw_only=True, slots=True)
class Fault:
    """One armed fault.

    Args:
        operation: where it strikes.
        fault: what happens.
        times: how often it still strikes.
        delay_ms: how late, for those that are about lateness.
        reference: only for this order of the caller; empty strikes everybody.
    """

    operation: str
    fault: str
    times: int = 1
    delay_ms: int = 1_000
    reference: str = ""

    def __post_init__(self) -> None:
        if self.fault not in KNOWN.get(self.operation, frozenset()):
            raise ValueError(f"no fault {self.fault!r} of {self.operation!r}")


class Faults:
    """The armed faults, oldest first."""

    def __init__(self) -> None:
        self._armed: list[Fault] = []

    def arm(self, fault: Fault) -> None:
        """Let a fault strike from now on."""
        self._armed.append(fault)

    def clear(self) -> None:
        """Disarm all."""
        self._armed.clear()

    def strike(self, operation: str, *, reference: str, header: str = "") -> Fault | None:
        """Return the fault that strikes this call, and use it up.

        Args:
            operation: what is being done.
            reference: the caller's order, where known.
            header: `fault` or `fault;delay_ms` of this call alone; goes before the armed ones.
        """
        if header:
            name, _, delay = header.partition(";")
            return Fault(operation=operation, fault=name, delay_ms=int(delay or 1_000))
        for fault in self._armed:
            if fault.operation == operation and fault.reference in ("", reference):
                fault.times -= 1
                if fault.times <= 0:
                    self._armed.remove(fault)
                return fault
        return None

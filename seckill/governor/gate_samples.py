"""What Redis says of every sale, asked once a second by the governor's own loop."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from inventory.errors import GateUnavailable
from inventory.gate import gate
from inventory.pressure import SalePressure, sale_pressure
from seckill.governor import store
from seckill.governor.signals import SaleSignals

_WINDOW_S: Final = 3.0


@dataclass(frozen=True, kw_only=True, slots=True)
class GateSample:
    """One look. `now_ms` is Redis TIME, 0 before the first answer."""

    now_ms: int = 0
    backlog: int = 0
    pending_oldest_s: float = 0.0
    arrival_per_s: float = 0.0
    sales: Mapping[int, SaleSignals] = field(default_factory=dict)


class GateSampler:
    """Belongs to one thread: remembers what was accepted, for the rate."""

    def __init__(self) -> None:
        self._accepted: dict[int, list[tuple[float, int]]] = {}

    def sample(
        self, validities: Mapping[int, int], held: Mapping[int, Sequence[str]]
    ) -> GateSample | None:
        """Look at every sale; None when Redis does not answer.

        Args:
            validities: ms, by activity.
            held: ids of held reservations, by activity; those without any may be left out.
        """
        try:
            now_ms = gate().run(store.read()).now_ms
            found = {
                activity: gate().run(
                    sale_pressure(
                        activity_id=activity,
                        validity_ms=validity_ms,
                        now_ms=now_ms,
                        held=held.get(activity, ()),
                    )
                )
                for activity, validity_ms in validities.items()
            }
        except GateUnavailable:
            return None
        return GateSample(
            now_ms=now_ms,
            backlog=sum(one.open for one in found.values()),
            pending_oldest_s=max((one.overdue_s for one in found.values()), default=0.0),
            arrival_per_s=self._rate(found, time.monotonic()),
            sales={
                activity: SaleSignals(open=one.open, pending=one.pending, expiring=one.expiring)
                for activity, one in found.items()
            },
        )

    def _rate(self, found: Mapping[int, SalePressure], now: float) -> float:
        """Return what was accepted a second over the last seconds (counters come once a second)."""
        rate = 0.0
        for activity, one in found.items():
            seen = self._accepted.setdefault(activity, [])
            if seen and one.accepted < seen[-1][1]:
                seen.clear()  # the counters began anew
            seen.append((now, one.accepted))
            while len(seen) > 2 and seen[1][0] <= now - _WINDOW_S:
                seen.pop(0)
            span = now - seen[0][0]
            if span > 0:
                rate += (one.accepted - seen[0][1]) / span
        self._accepted = {key: value for key, value in self._accepted.items() if key in found}
        return rate

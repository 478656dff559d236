"""What the monitor shows, as one frozen record a second (no I/O). Its JSON is the page's input."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

# From which value a number is a warning, and from which it is bad: those of the alert rules.
LIMITS: Final[Mapping[str, tuple[float, float]]] = {
    "lag_s": (1.0, 2.5),
    "pending_age_s": (1.0, 3.0),
    "order_age_s": (3.0, 10.0),
    "tx_p99_ms": (300.0, 1_000.0),
    "pool_wait_p95_ms": (20.0, 100.0),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """Changes per second over the last seconds; None until there are two looks."""

    requests: float | None
    accepted: float | None
    ordered: float | None
    paid: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitsRow:
    """Where the units of a SKU are.

    `supply` = initial + topped_up - cut; `difference` = supply - available - live - withheld, which
    is 0 unless something was oversold or lost. `reserved` are units that the gate has given away
    and no order has taken yet.
    """

    sku_id: int
    name: str
    initial: int
    topped_up: int
    cut: int
    supply: int
    at_gate: int
    reserved: int
    available: int
    live: int
    withheld: int
    difference: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SaleView:
    """One sale. Instants in epoch ms; counts since the sale began.

    `accepted` are distinct reservations, `confirmed` those that the broker has for certain,
    `ordered` committed orders; `paid` counts all that were paid, refunded ones among them.
    """

    activity_id: int
    name: str
    status: str
    is_test: bool
    starts_ms: int
    ends_ms: int
    gate: str
    stopped: bool
    requests: int
    answers: Mapping[str, int]
    accepted: int
    confirmed: int
    pending: int
    open: int
    ordered: int
    unpaid: int
    paid: int
    canceled: int
    refunded: int
    rejected: Mapping[str, int]
    pending_age_s: float
    open_age_s: float
    max_open: int
    max_pending: int
    rates: Rates
    units: tuple[UnitsRow, ...]
    unpaid_units: int
    paid_units: int


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupView:
    """A consumer group: its live loops, how far it is behind and how fast it drains."""

    group: str
    members: int
    lag_s: float
    drain_per_s: float
    state: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RoleView:
    """Processes of one role: loops that beat, by state, and loops that fell silent."""

    role: str
    alive: int
    silent: int
    states: Mapping[str, int]
    builds: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemView:
    """What is not one sale's: workers, groups, outbox and quarantine."""

    order_lag_s: float
    order_drain_per_s: float
    groups: tuple[GroupView, ...]
    roles: tuple[RoleView, ...]
    outbox_unsent: int
    quarantine_open: int
    quarantine_oldest_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """A decision of the governor, for the history."""

    at_ms: int
    level: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class GovernorPart:
    """The governor's decision.

    `state`: on; watching (it decides, and the settings tell everybody not to obey); stale (it is
    to be obeyed and nobody hears it); off.
    """

    state: str
    level: str
    entry_rate: float
    reasons: tuple[str, ...]
    signals: Mapping[str, Any]
    history: tuple[Decision, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """A part that could not be read; the numbers shown are those of before."""

    part: str
    error: str
    since_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """Everything, at one instant (Redis TIME). Sales: live ones first, then the newest."""

    at_ms: int
    sampler: str
    sales: tuple[SaleView, ...]
    system: SystemView | None
    governor: GovernorPart | None
    tx_p99_ms: float | None
    pool_wait_p95_ms: float | None
    problems: tuple[Problem, ...]

    def point(self) -> dict[str, Any]:
        """Return what the plots keep of this instant: short names, rounded numbers."""
        return {
            "t": self.at_ms,
            "lag": _rounded(self.system.order_lag_s if self.system else None),
            "tx": _rounded(self.tx_p99_ms),
            "lvl": self.governor.level if self.governor else None,
            "sales": {str(sale.activity_id): _sale_point(sale) for sale in self.sales},
        }


def _sale_point(sale: SaleView) -> list[float | None]:
    """Rates, ages, then units: the order is `POINT` of static/seckill/monitor/page.js."""
    rates = sale.rates
    return [
        *(_rounded(rate) for rate in (rates.requests, rates.accepted, rates.ordered, rates.paid)),
        _rounded(sale.pending_age_s),
        _rounded(sale.open_age_s),
        sum(row.at_gate for row in sale.units),
        sum(row.reserved for row in sale.units),
        sale.unpaid_units,
        sale.paid_units,
        sum(row.withheld for row in sale.units),
    ]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)

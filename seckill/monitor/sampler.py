"""The one sampler: looks at the stores once a second and makes a snapshot of what it saw.

Its cost does not depend on how many people watch, and hardly on the sale: about a dozen short
statements and a round trip to Redis for each sale. What counts rows gets asked less often when it
gets slow (`part.py`). A store that is away costs its own part, never the snapshot.
"""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

from django.db import close_old_connections, connection, connections
from django.utils import timezone

from inventory.gate import gate
from inventory.watch import SaleAtGate, sale_at_gate
from messaging import selectors
from messaging.topology import CG_ORDER_CREATE
from orders.sale_numbers import SaleNumbers, sale_numbers
from seckill.monitor import crew
from seckill.monitor.governor_part import governor_part
from seckill.monitor.part import Part
from seckill.monitor.rates import RateMeter
from seckill.monitor.snapshot import (
    GovernorPart,
    Rates,
    SaleView,
    Snapshot,
    SystemView,
    UnitsRow,
)

T = TypeVar("T")

MOST_SALES: Final = 6
_GATE_ORDER: Final = ("MISSING", "REBUILDING", "CLOSED", "PAUSED", "OPEN")


@dataclass
class _Meters:
    requests: RateMeter
    accepted: RateMeter
    ordered: RateMeter
    paid: RateMeter


class Sampler:
    """Belongs to one thread.

    Args:
        name: who samples, for the page's foot.
    """

    def __init__(self, *, name: str) -> None:
        self._name = name
        # One thread, so one connection: PostgreSQL is asked for one thing at a time.
        self._database = ThreadPoolExecutor(1, thread_name_prefix="monitor-database")
        self._redis = ThreadPoolExecutor(1, thread_name_prefix="monitor-redis")
        self._sales = Part(
            name="orders in PostgreSQL",
            read=_on_database(lambda: sale_numbers(MOST_SALES)),
            threads=self._database,
        )
        self._system = Part(
            name="workers in PostgreSQL", read=_on_database(_system), threads=self._database
        )
        self._governor = Part(
            name="governor", read=_on_database(governor_part), threads=self._database
        )
        self._gates = Part(name="gates in Redis", read=self._read_gates, threads=self._redis)
        self._meters: dict[int, _Meters] = {}

    def sample(self, now_ms: int) -> Snapshot:
        """Look once.

        Args:
            now_ms: Redis TIME of this look, epoch ms.

        Cost: about 15 short statements, one round trip to Redis for each watched sale. Never
        raises: what could not be read is in `problems`, with the numbers of before.
        """
        problems = [
            problem
            for part in (self._sales, self._system, self._governor, self._gates)
            if (problem := part.refresh(now_ms)) is not None
        ]
        governor = self._governor.value
        return Snapshot(
            at_ms=now_ms,
            sampler=self._name,
            sales=tuple(self._sale(numbers) for numbers in self._sales.value or ()),
            system=self._system.value,
            governor=governor,
            tx_p99_ms=_signal(governor, "tx_p99_ms"),
            pool_wait_p95_ms=_signal(governor, "pool_wait_p95_ms"),
            problems=tuple(problems),
        )

    def close(self) -> None:
        """Let go of the connection; a read that hangs is left to itself after a second."""
        closed = self._database.submit(connections.close_all)
        wait([closed], timeout=1.0)
        self._database.shutdown(wait=False)
        self._redis.shutdown(wait=False)

    def _read_gates(self) -> dict[int, SaleAtGate]:
        return {
            numbers.sale.activity_id: gate().run(
                sale_at_gate(
                    activity_id=numbers.sale.activity_id,
                    sku_ids=[sku.sku_id for sku in numbers.sale.skus],
                    validity_ms=numbers.sale.validity_ms,
                )
            )
            for numbers in self._sales.value or ()
        }

    def _sale(self, numbers: SaleNumbers) -> SaleView:
        sale = numbers.sale
        seen = (self._gates.value or {}).get(sale.activity_id, _NOTHING)
        status = Counter(numbers.by_status)
        held = sum(sku.holders for sku in seen.skus)
        # Who holds units now and who gave them back; or, after a loss, what PostgreSQL knows.
        accepted = max(held + numbers.released, numbers.orders + sum(numbers.rejected.values()), 0)
        requests = sum(seen.answers.values())
        return SaleView(
            activity_id=sale.activity_id,
            name=sale.name,
            status=sale.status.value,
            is_test=sale.is_test,
            starts_ms=sale.starts_ms,
            ends_ms=sale.ends_ms,
            gate=_worst([sku.status for sku in seen.skus]),
            stopped=any(sku.stopped for sku in seen.skus),
            requests=requests,
            answers=seen.answers,
            accepted=accepted,
            confirmed=max(0, accepted - seen.pending),
            pending=seen.pending,
            open=seen.open,
            ordered=numbers.orders,
            unpaid=status["CREATED"] + status["PAYING"],
            paid=numbers.paid,
            canceled=status["CANCELED"],
            refunded=status["REFUNDED"] + status["REFUNDING"],
            rejected=numbers.rejected,
            pending_age_s=seen.pending_age_s,
            open_age_s=seen.open_age_s,
            max_open=sale.max_open,
            max_pending=sale.max_pending,
            rates=self._rates(numbers, requests=requests, accepted=accepted),
            units=_units(numbers, seen),
            unpaid_units=numbers.unpaid_units,
            paid_units=numbers.paid_units,
        )

    def _rates(self, numbers: SaleNumbers, *, requests: int, accepted: int) -> Rates:
        meters = self._meters.setdefault(
            numbers.sale.activity_id,
            _Meters(RateMeter(), RateMeter(), RateMeter(), RateMeter()),
        )
        gate_at_s, database_at_s = self._gates.read_at_ms / 1000, self._sales.read_at_ms / 1000
        meters.requests.saw(gate_at_s, requests)
        meters.accepted.saw(gate_at_s, accepted)
        meters.ordered.saw(database_at_s, numbers.orders)
        meters.paid.saw(database_at_s, numbers.paid)
        return Rates(
            requests=meters.requests.per_s,
            accepted=meters.accepted.per_s,
            ordered=meters.ordered.per_s,
            paid=meters.paid.per_s,
        )


_NOTHING: Final = SaleAtGate(
    skus=(), pending=0, pending_age_s=0.0, open=0, open_age_s=0.0, answers={}
)


def _units(numbers: SaleNumbers, seen: SaleAtGate) -> tuple[UnitsRow, ...]:
    at_gate = {sku.sku_id: sku.stock for sku in seen.skus}
    rows = []
    for sku in numbers.sale.skus:
        supply = sku.initial + sku.topped_up - sku.cut
        live = numbers.live_units.get(sku.sku_id, 0)
        left = at_gate.get(sku.sku_id, 0)
        rows.append(
            UnitsRow(
                sku_id=sku.sku_id,
                name=sku.name,
                initial=sku.initial,
                topped_up=sku.topped_up,
                cut=sku.cut,
                supply=supply,
                at_gate=left,
                reserved=max(0, sku.available - left),
                available=sku.available,
                live=live,
                withheld=sku.withheld,
                difference=supply - sku.available - live - sku.withheld,
            )
        )
    return tuple(rows)


def _system() -> SystemView:
    workers = selectors.workers()
    paused = {group.group for group in selectors.paused_groups()}
    backlog = selectors.outbox_backlog()
    quarantine = selectors.open_quarantine()
    now: datetime = timezone.now()
    groups = crew.groups(workers, paused, now)
    orders = next((group for group in groups if group.group == CG_ORDER_CREATE), None)
    return SystemView(
        order_lag_s=orders.lag_s if orders else 0.0,
        order_drain_per_s=orders.drain_per_s if orders else 0.0,
        groups=groups,
        roles=crew.roles(workers, now),
        outbox_unsent=sum(lane.rows for lane in backlog),
        quarantine_open=sum(group.rows for group in quarantine),
        quarantine_oldest_s=max((group.oldest_s for group in quarantine), default=0.0),
    )


def _worst(statuses: list[str]) -> str:
    return next((status for status in _GATE_ORDER if status in statuses), "MISSING")


def _signal(governor: GovernorPart | None, name: str) -> float | None:
    """Return a measure of the order transactions; None while there are none."""
    value = governor.signals.get(name) if governor else None
    return float(value) if isinstance(value, (int, float)) and value > 0 else None


def _on_database(read: Callable[[], T]) -> Callable[[], T]:
    """Return the read with a connection that lives, and that is closed after a failure."""

    def run() -> T:
        close_old_connections()
        try:
            return read()
        except Exception:
            connection.close()
            raise

    return run

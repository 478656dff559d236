"""`check_invariants`: what must hold, checked; the conservation table, counted.

PostgreSQL against itself in one snapshot, at any time; Redis against PostgreSQL per reservation;
totals only at rest. A sale in motion is no breach. Source: docs/reliability.md.
"""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, Final

from django.conf import settings
from django.db import connection, transaction

from inventory import selectors
from inventory.selectors import ActivityRecord, SkuConservation
from messaging.topology import CG_ORDER_CREATE
from orders.database import allow_long_reads, fetch
from orders.equalities import EQUALITIES, SAMPLES
from orders.gate_check import check_gate
from orders.payments.money import MoneyRow, money_breaches, money_table

_ORDER_COUNTS: Final = """
SELECT sku_id, status, count(*), coalesce(sum(quantity), 0)::bigint FROM orders_order
 WHERE activity_id = %s GROUP BY sku_id, status
"""
_REJECT_COUNTS: Final = """
SELECT reject_reason, count(*) FROM orders_reservation
 WHERE activity_id = %s AND outcome = 'REJECTED' GROUP BY reject_reason
"""
_PAID: Final = frozenset({"PAID", "FULFILLING", "FULFILLED"})
_ENDED: Final = frozenset({"CANCELED", "REFUNDED"})
_BROKEN: Final = frozenset({"RESERVATION_EXPIRED", "NO_FINAL_STOCK"})
_LOST: Final = frozenset({"inbox_created_without_order", "holder_without_order"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Breach:
    """A rule that does not hold: how often, and up to 20 ids to look at."""

    kind: str
    activity_id: int | None
    rule: str
    count: int
    samples: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SaleReport:
    """One sale in numbers. `motion` is empty at rest, else it says what is on its way."""

    activity_id: int
    name: str
    initial: int
    topped_up: int
    cut: int
    available: int
    withheld: int
    live_units: int
    accepted: int
    orders: int
    paid: int
    canceled: int
    refunded: int
    rejected: dict[str, int]
    oversold: int
    motion: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """Everything that was found."""

    sales: tuple[SaleReport, ...]
    breaches: tuple[Breach, ...]
    money: tuple[MoneyRow, ...]

    @property
    def in_motion(self) -> bool:
        """Whether units are on their way (some totals were not compared), or money is unclear."""
        return any(sale.motion for sale in self.sales) or not all(m.at_rest for m in self.money)

    def as_json(self) -> dict[str, Any]:
        """Return the keys of `bin/demo --json`; `sold_out` is known to admission only (null)."""
        sales = self.sales
        return {
            "accepted": sum(sale.accepted for sale in sales),
            "sold_out": None,
            "orders": sum(sale.orders for sale in sales),
            "paid": sum(sale.paid for sale in sales),
            "canceled": sum(sale.canceled for sale in sales),
            "refunded": sum(sale.refunded for sale in sales),
            "oversold": sum(sale.oversold for sale in sales),
            "lost": self._count(_LOST),
            "broken": sum(n for s in sales for r, n in s.rejected.items() if r in _BROKEN),
            "duplicates": self._count(frozenset({"duplicate_live_order"})),
            "breaches": [asdict(breach) for breach in self.breaches],
            "in_motion": self.in_motion,
            "money": [asdict(row) for row in self.money],
            "sales": [asdict(sale) for sale in sales],
        }

    def _count(self, kinds: frozenset[str]) -> int:
        return sum(breach.count for breach in self.breaches if breach.kind in kinds)


def check(activity_id: int | None = None, *, young_ms: int | None = None) -> Report:
    """Check one sale, or all that left DRAFT.

    Args:
        activity_id: the sale; None: all.
        young_ms: up to this age reservations are not compared with the gate one by one; None: as
            `gate_check.YOUNG_MS` says; 0: the caller waited for rest, compare all.

    Raises:
        LookupError: there is no such sale.

    Cost: scans orders, reservations, inbox and outbox of the sale; no locks.
    """
    breaches: list[Breach] = []
    with transaction.atomic(durable=True):
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        allow_long_reads()
        sales = _sales(activity_id)
        breaches += _equalities(activity_id)
        breaches += _money(activity_id)
        money = tuple(money_table(activity_id))
        stocks = {sale.activity_id: selectors.conservation(sale.activity_id) for sale in sales}
        counts = {
            sale.activity_id: (
                fetch(_ORDER_COUNTS, (sale.activity_id,)),
                dict(fetch(_REJECT_COUNTS, (sale.activity_id,))),
            )
            for sale in sales
        }
    reports = []
    for sale in sales:
        orders, rejects = counts[sale.activity_id]
        live = Counter[int]()
        for sku_id, status, _, units in orders:
            live[sku_id] += 0 if status in _ENDED else units
        breaches += _conservation(sale, stocks[sale.activity_id], live)
        motion, waiting = _gate(sale, breaches, young_ms)
        reports.append(
            _report(sale, stocks[sale.activity_id], orders, rejects, live, motion, waiting)
        )
    return Report(sales=tuple(reports), breaches=tuple(breaches), money=money)


def _sales(activity_id: int | None) -> list[ActivityRecord]:
    if activity_id is None:
        return selectors.list_activities()
    sale = selectors.activity_record(activity_id)
    if sale is None:
        raise LookupError(f"there is no activity {activity_id}")
    return [sale]


def _equalities(activity_id: int | None) -> list[Breach]:
    params = {
        "activity": activity_id,
        "group": CG_ORDER_CREATE,
        "inbox_days": settings.SECKILL_INBOX_DAYS - 1,
        "outbox_days": settings.SECKILL_OUTBOX_DAYS - 1,
    }
    found = []
    for equality in EQUALITIES:
        with connection.cursor() as cursor:
            cursor.execute(equality.sql, params)
            rows = cursor.fetchall()
        if rows:
            found.append(
                Breach(
                    kind=equality.kind,
                    activity_id=rows[0][0],
                    rule=equality.rule,
                    count=len(rows),
                    samples=tuple(str(row[1]) for row in rows[:SAMPLES]),
                )
            )
    return found


def _money(activity_id: int | None) -> list[Breach]:
    """What came in is kept, refunded or due, for each order and to the cent."""
    lines = money_breaches(activity_id)
    if not lines:
        return []
    return [
        Breach(
            kind="money",
            activity_id=activity_id,
            rule="money in = kept + refunded + refund due, per order",
            count=len(lines),
            samples=tuple(lines[:SAMPLES]),
        )
    ]


def _conservation(
    sale: ActivityRecord, stock: list[SkuConservation], live: Counter[int]
) -> list[Breach]:
    """Every unit of a SKU is available, in a live order, or withheld; the ledger says the same."""
    found = []
    for sku in stock:
        supply = sku.initial + sku.topped_up - sku.cut
        kept = sku.available + live[sku.sku_id] + sku.withheld
        rules = {
            "stock_conservation": (
                supply == kept,
                f"initial {sku.initial} + top-ups {sku.topped_up} - cuts {sku.cut} = {supply}, but"
                f" available {sku.available} + live {live[sku.sku_id]} + withheld {sku.withheld}"
                f" = {kept}",
            ),
            "ledger_sum": (
                sku.ledger_delta == sku.available,
                f"the ledger's sum is {sku.ledger_delta}, available is {sku.available}",
            ),
            "ledger_kinds": (
                (sku.ledger_initial, sku.ledger_topped_up, sku.ledger_cut, sku.ledger_withheld)
                == (sku.initial, sku.topped_up, sku.cut, sku.withheld),
                "initial, top-ups, cuts and withheld differ between ledger and stock row",
            ),
        }
        found += [
            Breach(
                kind=kind,
                activity_id=sale.activity_id,
                rule=f"SKU {sku.sku_id}: {text}",
                count=1,
                samples=(str(sku.sku_id),),
            )
            for kind, (holds, text) in rules.items()
            if not holds
        ]
    return found


def _gate(
    sale: ActivityRecord, breaches: list[Breach], young_ms: int | None
) -> tuple[tuple[str, ...], int]:
    if sale.opened_at is None:
        return (), 0
    findings = check_gate(sale, young_ms=young_ms)
    by_kind: dict[str, list[str]] = {}
    for kind, what in findings.breaches:
        by_kind.setdefault(kind, []).append(what)
    breaches += [
        Breach(
            kind=kind,
            activity_id=sale.activity_id,
            rule=_GATE_RULES[kind],
            count=len(found),
            samples=tuple(found[:SAMPLES]),
        )
        for kind, found in by_kind.items()
    ]
    return tuple(findings.motion), findings.waiting


_GATE_RULES: Final = {
    "order_without_holder": "the buyer of a live order holds its reservation at the gate",
    "holder_without_order": "who holds units at the gate has an order, or waits for an outcome",
    "gate_stock": "at rest the gate's stock is what is available without what is held",
}


def _report(
    sale: ActivityRecord,
    stock: list[SkuConservation],
    orders: list[tuple[Any, ...]],
    rejects: dict[str, int],
    live: Counter[int],
    motion: tuple[str, ...],
    waiting: int,
) -> SaleReport:
    by_status = Counter[str]()
    for _, status, count, _ in orders:
        by_status[status] += count
    made = sum(by_status.values())
    return SaleReport(
        activity_id=sale.activity_id,
        name=sale.name,
        initial=sum(sku.initial for sku in stock),
        topped_up=sum(sku.topped_up for sku in stock),
        cut=sum(sku.cut for sku in stock),
        available=sum(sku.available for sku in stock),
        withheld=sum(sku.withheld for sku in stock),
        live_units=sum(live.values()),
        accepted=made + sum(rejects.values()) + waiting,
        orders=made,
        paid=sum(by_status[status] for status in _PAID),
        canceled=by_status["CANCELED"],
        refunded=by_status["REFUNDED"],
        rejected=rejects,
        oversold=sum(
            max(0, live[sku.sku_id] - sku.initial - sku.topped_up + sku.cut) for sku in stock
        ),
        motion=motion,
    )

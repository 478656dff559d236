"""The settlement report: initial + top-ups - cuts = sold + left + withheld, differences explained.

Read in one snapshot, at any time; while orders are unpaid it says so. JSON for machines, CSV for
spreadsheets (no cell is ever a formula).
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from django.db import connection, transaction

from inventory import selectors
from orders.database import fetch
from orders.payments.money import MoneyRow, money_table
from orders.states import ENDED, UNPAID

_ORDERS: Final = """
SELECT sku_id, status, cancel_reason, count(*), coalesce(sum(quantity), 0)::bigint
  FROM orders_order WHERE activity_id = %s GROUP BY sku_id, status, cancel_reason
 ORDER BY sku_id, status, cancel_reason
"""
_REJECTS: Final = """
SELECT sku_id, reject_reason, count(*) FROM orders_reservation
 WHERE activity_id = %s AND outcome = 'REJECTED' GROUP BY sku_id, reject_reason
 ORDER BY sku_id, reject_reason
"""
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")


@dataclass(frozen=True, kw_only=True, slots=True)
class SkuSettlement:
    """One SKU in units. `difference` is what the equation lacks: 0, or it is explained."""

    sku_id: int
    name: str
    price_cents: int
    currency: str
    initial: int
    topped_up: int
    cut: int
    supply: int  # initial + top-ups - cuts
    sold: int  # units of live orders, `unpaid` included
    unpaid: int
    left: int
    withheld: int
    difference: int
    orders: int
    canceled: dict[str, int]  # reason → orders
    refunded: int
    rejected: dict[str, int]  # reason → reservations
    explanations: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SettlementReport:
    """A sale in numbers, at one instant."""

    activity_id: int
    name: str
    status: str
    is_test: bool
    starts_at: str
    ends_at: str
    taken_at: str
    skus: tuple[SkuSettlement, ...]
    money: tuple[MoneyRow, ...]

    @property
    def balanced(self) -> bool:
        """Whether every unit is accounted for."""
        return all(sku.difference == 0 for sku in self.skus)

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {**asdict(self), "balanced": self.balanced}


def settlement_report(activity_id: int) -> SettlementReport:
    """Count a sale.

    Raises:
        LookupError: there is no such sale.

    Cost: eight statements in one snapshot; scans the sale's orders, reservations and ledger.
    """
    with transaction.atomic(durable=True):
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        return report_in_snapshot(activity_id)


def report_in_snapshot(activity_id: int) -> SettlementReport:
    """Count a sale inside the caller's REPEATABLE READ transaction; see `settlement_report`."""
    sale = selectors.activity_record(activity_id)
    if sale is None:
        raise LookupError(f"there is no activity {activity_id}")
    ((now,),) = fetch("SELECT now()")
    orders = fetch(_ORDERS, (activity_id,))
    rejects = fetch(_REJECTS, (activity_id,))
    stock = {sku.sku_id: sku for sku in selectors.conservation(activity_id)}
    return SettlementReport(
        activity_id=activity_id,
        name=sale.name,
        status=sale.status.value,
        is_test=sale.is_test,
        starts_at=_text(sale.starts_at),
        ends_at=_text(sale.ends_at),
        taken_at=_text(now),
        skus=tuple(
            _sku(
                sku,
                stock[sku.sku_id],
                [row[1:] for row in orders if row[0] == sku.sku_id],
                {reason: count for sku_id, reason, count in rejects if sku_id == sku.sku_id},
            )
            for sku in sale.skus
            if sku.sku_id in stock
        ),
        money=tuple(money_table(activity_id)),
    )


def _sku(
    sku: selectors.SkuRecord,
    stock: selectors.SkuConservation,
    orders: Sequence[tuple[Any, ...]],
    rejected: dict[str, int],
) -> SkuSettlement:
    sold = sum(units for status, _, _, units in orders if status not in ENDED)
    unpaid = sum(units for status, _, _, units in orders if status in UNPAID)
    supply = stock.initial + stock.topped_up - stock.cut
    difference = supply - sold - stock.available - stock.withheld
    return SkuSettlement(
        sku_id=sku.sku_id,
        name=sku.name,
        price_cents=sku.price_cents,
        currency=sku.currency,
        initial=stock.initial,
        topped_up=stock.topped_up,
        cut=stock.cut,
        supply=supply,
        sold=sold,
        unpaid=unpaid,
        left=stock.available,
        withheld=stock.withheld,
        difference=difference,
        orders=sum(count for _, _, count, _ in orders),
        canceled={why: count for status, why, count, _ in orders if status == "CANCELED"},
        refunded=sum(count for status, _, count, _ in orders if status == "REFUNDED"),
        rejected=rejected,
        explanations=tuple(_explain(stock, sold, unpaid, difference)),
    )


def _explain(
    stock: selectors.SkuConservation, sold: int, unpaid: int, difference: int
) -> list[str]:
    """Say in words what the numbers alone do not."""
    lines = []
    if stock.restocked_units:
        lines.append(
            f"{stock.restocked_units} of {stock.sold_units} units that were sold came back and were"
            " put on sale again"
        )
    if stock.withheld:
        lines.append(f"{stock.withheld} units came back and were withheld from the sale")
    if unpaid:
        lines.append(f"{unpaid} of the sold units are not paid yet and may still come back")
    if stock.unbooked_operations:
        lines.append(f"{stock.unbooked_operations} top-ups or cuts are not at the gate yet")
    ledger_sold = stock.sold_units - stock.restocked_units - stock.ledger_withheld
    if ledger_sold != sold:
        lines.append(f"the ledger has {ledger_sold} units in live orders, the orders have {sold}")
    if stock.ledger_delta != stock.available:
        lines.append(f"the ledger's sum is {stock.ledger_delta}, left are {stock.available}")
    if difference:
        lines.append(
            f"{difference} units are not accounted for: manage.py reconcile names the rows"
        )
    return lines


def as_csv(report: SettlementReport) -> str:
    """Return one line for each SKU, and what explains it; no cell is taken for a formula."""
    out = io.StringIO()
    writer = csv.writer(out)
    numbers = (
        *("initial", "topped_up", "cut", "supply", "sold", "unpaid", "left", "withheld"),
        *("difference", "orders", "refunded"),
    )
    writer.writerow(
        [
            *("activity_id", "activity", "status", "taken_at", "sku_id", "sku", "price_cents"),
            *("currency", *numbers, "canceled", "rejected", "explanations"),
        ]
    )
    for sku in report.skus:
        writer.writerow(
            [
                report.activity_id,
                safe_cell(report.name),
                report.status,
                report.taken_at,
                sku.sku_id,
                safe_cell(sku.name),
                sku.price_cents,
                safe_cell(sku.currency),
                *(getattr(sku, name) for name in numbers),
                safe_cell("; ".join(f"{why} {count}" for why, count in sku.canceled.items())),
                safe_cell("; ".join(f"{why} {count}" for why, count in sku.rejected.items())),
                safe_cell("; ".join(sku.explanations)),
            ]
        )
    return out.getvalue()


def safe_cell(text: str) -> str:
    """Return the text so that no spreadsheet takes it for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def _text(instant: datetime) -> str:
    return instant.isoformat(timespec="milliseconds")

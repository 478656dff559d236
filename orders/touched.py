"""What must hold of a few purchases that somebody repaired, and of the SKUs that they touch.

The same rules as `check_invariants`, asked by key: one snapshot of PostgreSQL, then the gate.
Source: docs/reliability.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db import connection, transaction

from inventory import verbs
from inventory.errors import GateUnavailable
from inventory.gate import gate
from inventory.selectors import conservation
from messaging import inbox
from messaging.topology import CG_ORDER_CREATE
from orders.database import fetch

_PURCHASES: Final = """
SELECT w.reservation_id, r.message_id, r.outcome, r.release_state, r.activity_id, r.sku_id,
       o.order_id, o.status, o.sku_id = r.sku_id AND o.quantity = r.quantity,
       (SELECT count(*) FROM orders_order x
         WHERE x.activity_id = r.activity_id AND x.sku_id = r.sku_id AND x.user_id = r.user_id
           AND x.status NOT IN ('CANCELED', 'REFUNDED')),
       (SELECT count(*) FROM orders_item i WHERE i.order_id = o.order_id),
       (SELECT coalesce(sum(l.delta), 0) FROM inventory_stockledger l
         WHERE l.source_id = r.order_id AND l.kind = 'SALE'),
       (SELECT count(*) FROM inventory_stockledger l
         WHERE l.source_id = r.order_id AND l.kind IN ('RESTOCK', 'WITHHELD')),
       o.quantity
  FROM unnest(%b::text[]) AS w(reservation_id)
  LEFT JOIN orders_reservation r ON r.reservation_id = w.reservation_id
  LEFT JOIN orders_order o ON o.reservation_id = w.reservation_id
 ORDER BY w.reservation_id
"""
_LIVE_UNITS: Final = """
SELECT sku_id, coalesce(sum(quantity), 0)::bigint FROM orders_order
 WHERE activity_id = %s AND status NOT IN ('CANCELED', 'REFUNDED') GROUP BY sku_id
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class TouchedBreach:
    """A rule that does not hold. `reservation_id` is empty for a SKU's totals."""

    kind: str
    reservation_id: str
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TouchedReport:
    """What was found. `gate_silent`: Redis did not answer, so the gate's side was not checked."""

    breaches: tuple[TouchedBreach, ...]
    gate_silent: bool


def check_touched(reservation_ids: Sequence[str]) -> TouchedReport:
    """Check purchases that have an outcome, and the conservation of units of their SKUs.

    Args:
        reservation_ids: of purchases whose message was processed.

    Cost: three statements, two more for each sale (one scans its ledger), one read of Redis a sale.
    """
    wanted = sorted(set(reservation_ids))
    if not wanted:
        return TouchedReport(breaches=(), gate_silent=False)
    breaches: list[TouchedBreach] = []
    with transaction.atomic(durable=True):
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        purchases = fetch(_PURCHASES, (wanted,))
        message_ids = [row[1] for row in purchases if row[1]]
        outcomes = inbox.outcomes(group=CG_ORDER_CREATE, message_ids=message_ids)
        for row in purchases:
            known = outcomes.get(row[1]) if row[1] else None
            breaches += _purchase(row, known.outcome.value if known else "")
        for activity_id in sorted({row[4] for row in purchases if row[4]}):
            breaches += _units(activity_id)
    live = {row[0]: row[4] for row in purchases if row[6] and row[7] not in _ENDED}
    try:
        breaches += _gate(live)
    except GateUnavailable:
        return TouchedReport(breaches=tuple(breaches), gate_silent=True)
    return TouchedReport(breaches=tuple(breaches), gate_silent=False)


_ENDED: Final = frozenset({"CANCELED", "REFUNDED"})


def _purchase(row: tuple[Any, ...], inbox_outcome: str) -> list[TouchedBreach]:
    (rsv, _, outcome, release, _, _, order_id, status, same, live, items, sold, returned, units) = (
        row
    )
    ended = status in _ENDED
    detail = f"{outcome} {status} {release}"
    if outcome is None:
        return [TouchedBreach(kind="no_outcome", reservation_id=rsv, detail=detail)]
    ordered = outcome == "ORDERED"
    rules = {
        "inbox": inbox_outcome == ("CREATED" if ordered else "REJECTED"),
        "order_count": (order_id is not None) == ordered,
        "order_fields": not ordered or (bool(same) and items == 1),
        "live_orders": (live or 0) <= 1,
        "ledger_sale": sold == (-units if ordered and units else 0),
        "ledger_return": returned == (1 if status == "CANCELED" else 0) or status == "REFUNDED",
        "release": release == "NONE"
        if ordered and not ended
        else release in ("DUE", "DONE") or status == "REFUNDED",
    }
    return [
        TouchedBreach(kind=kind, reservation_id=rsv, detail=detail)
        for kind, holds in rules.items()
        if not holds
    ]


def _units(activity_id: int) -> list[TouchedBreach]:
    live = dict(fetch(_LIVE_UNITS, (activity_id,)))
    found = []
    for sku in conservation(activity_id):
        supply = sku.initial + sku.topped_up - sku.cut
        kept = sku.available + live.get(sku.sku_id, 0) + sku.withheld
        if supply != kept or sku.ledger_delta != sku.available:
            found.append(
                TouchedBreach(
                    kind="stock_conservation",
                    reservation_id="",
                    detail=f"SKU {sku.sku_id}: supply {supply}, kept {kept}, available"
                    f" {sku.available}, ledger {sku.ledger_delta}",
                )
            )
    return found


def _gate(live: dict[str, int]) -> list[TouchedBreach]:
    """A live order's reservation holds its units at the gate; a missing hash says nothing."""
    found = []
    for activity_id in sorted(set(live.values())):
        mine = sorted(rsv for rsv, sale in live.items() if sale == activity_id)
        states = gate().run(verbs.reservations(activity_id=activity_id, reservation_ids=mine))
        found += [
            TouchedBreach(
                kind="order_without_holder", reservation_id=state.reservation_id, detail="RELEASED"
            )
            for state in states
            if state is not None and state.status == "RELEASED"
        ]
    return found

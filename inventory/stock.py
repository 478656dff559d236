"""The final stock in PostgreSQL and its ledger, inside the caller's transaction, set-based.

Hot rows: `inventory_stock`, one a SKU. They are locked in SKU order and as late as possible, so
that two transactions never wait for each other in a circle. Source: docs/flow.md.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.db import connection, transaction

from inventory.errors import OutOfStock
from inventory.metrics import CONDITION_UPDATE_MISS
from inventory.states import LedgerKind

_INSERT_LEDGER = """
INSERT INTO inventory_stockledger (activity_id, sku_id, kind, source_id, delta, units)
SELECT * FROM unnest(%b::bigint[], %b::bigint[], %b::text[], %b::text[], %b::bigint[], %b::bigint[])
"""
_LOCK = """
SELECT sku_id, available FROM inventory_stock WHERE sku_id = ANY(%b::bigint[])
ORDER BY sku_id FOR NO KEY UPDATE
"""
_TAKE = """
UPDATE inventory_stock s SET available = s.available - d.units
FROM unnest(%b::bigint[], %b::bigint[]) AS d (sku_id, units)
WHERE s.sku_id = d.sku_id AND s.available >= d.units
"""
_RETURN = """
UPDATE inventory_stock s
SET available = s.available + d.restocked, withheld = s.withheld + d.withheld
FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[]) AS d (sku_id, restocked, withheld)
WHERE s.sku_id = d.sku_id
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sale:
    """Units that an order takes."""

    activity_id: int
    sku_id: int
    order_id: str
    units: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Return:
    """Units that an ended order gives back; with `restock` false they leave the sale."""

    activity_id: int
    sku_id: int
    order_id: str
    units: int
    restock: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerLine:
    """One line of the ledger: what moved, why, and by what it is booked once."""

    activity_id: int
    sku_id: int
    kind: LedgerKind
    source_id: str
    delta: int
    units: int


def book(lines: Iterable[LedgerLine]) -> None:
    """Write ledger lines, sorted by their unique key.

    Raises:
        IntegrityError: a line of the same kind and source exists: the caller books twice.
    """
    ordered = sorted(lines, key=lambda line: (line.source_id, line.kind))
    if not ordered:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            _INSERT_LEDGER,
            [
                [line.activity_id for line in ordered],
                [line.sku_id for line in ordered],
                [line.kind.value for line in ordered],
                [line.source_id for line in ordered],
                [line.delta for line in ordered],
                [line.units for line in ordered],
            ],
        )


def book_sales(rows: Sequence[Sale]) -> None:
    """Write the ledger lines of new orders (one statement; `take` moves the stock itself).

    Args:
        rows: one for each new order.
    """
    book(
        LedgerLine(
            activity_id=row.activity_id,
            sku_id=row.sku_id,
            kind=LedgerKind.SALE,
            source_id=row.order_id,
            delta=-row.units,
            units=row.units,
        )
        for row in rows
    )


def lock(sku_ids: Iterable[int]) -> dict[int, int]:
    """Lock stock rows in SKU order until the transaction ends; the only way to lock them.

    Returns:
        SKU → available units; SKUs without a stock row are missing.
    """
    if not transaction.get_connection().in_atomic_block:
        raise transaction.TransactionManagementError("stock is locked inside a transaction only")
    with connection.cursor() as cursor:
        cursor.execute(_LOCK, [sorted(set(sku_ids))])
        return dict(cursor.fetchall())


def take(demand: Mapping[int, int]) -> None:
    """Take units of several SKUs, all or nothing; the last guard against overselling.

    Args:
        demand: SKU → units, each ≥ 1.

    Raises:
        OutOfStock: a SKU has fewer units; nothing was taken and the transaction is still good.

    Cost: two statements, the rows stay locked until COMMIT: call it last.
    """
    if not demand:
        return
    sku_ids = sorted(demand)
    available = lock(sku_ids)
    short = [sku_id for sku_id in sku_ids if available.get(sku_id, 0) < demand[sku_id]]
    if short:
        CONDITION_UPDATE_MISS.inc()
        raise OutOfStock(f"final stock of SKUs {short} does not cover the demand")
    with connection.cursor() as cursor:
        cursor.execute(_TAKE, [sku_ids, [demand[sku_id] for sku_id in sku_ids]])
        if cursor.rowcount != len(sku_ids):  # cannot be: the rows are locked
            raise RuntimeError(f"locked stock of SKUs {sku_ids} changed")


def give_back(rows: Sequence[Return]) -> None:
    """Book returned units: the ledger first, then the stock rows, locked in SKU order.

    Args:
        rows: ended orders; `restock` true puts units on sale again, false withholds them.

    Raises:
        IntegrityError: an order's units were returned before.

    Cost: three statements.
    """
    if not rows:
        return
    book(
        LedgerLine(
            activity_id=row.activity_id,
            sku_id=row.sku_id,
            kind=LedgerKind.RESTOCK if row.restock else LedgerKind.WITHHELD,
            source_id=row.order_id,
            delta=row.units if row.restock else 0,
            units=row.units,
        )
        for row in rows
    )
    restocked: Counter[int] = Counter()
    withheld: Counter[int] = Counter()
    for row in rows:
        (restocked if row.restock else withheld)[row.sku_id] += row.units
    sku_ids = sorted({row.sku_id for row in rows})
    lock(sku_ids)
    with connection.cursor() as cursor:
        cursor.execute(
            _RETURN,
            [
                sku_ids,
                [restocked[sku_id] for sku_id in sku_ids],
                [withheld[sku_id] for sku_id in sku_ids],
            ],
        )

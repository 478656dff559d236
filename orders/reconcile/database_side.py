"""PostgreSQL against itself: inbox, orders, reservations, ledger, stock.

Found in one REPEATABLE READ snapshot, so that a sale in full motion shows no false difference.
"""

from typing import Any, Final

from django.conf import settings
from django.db import connection, transaction

from inventory import selectors
from messaging import outbox, quarantine
from messaging.topology import CG_ORDER_CREATE
from orders.contracts import ORDER_CREATED
from orders.database import allow_long_reads, begin, execute, fetch
from orders.equalities import EQUALITIES
from orders.events import (
    ORDER_COLUMNS,
    cancel_trigger,
    order_event,
    order_record,
    release_command,
)
from orders.reconcile.difference import Difference, Outcome, Scope

STOCK: Final = "stock_against_ledger"
TICKET_WITH_OUTCOME: Final = "ticket_with_outcome"
DUE_STUCK: Final = "release_stuck"
OVERDUE_STUCK: Final = "overdue_order"
STUCK_S: Final = 600

_LIVE_UNITS: Final = """
SELECT sku_id, sum(quantity)::bigint FROM orders_order
 WHERE activity_id = %s AND status NOT IN ('CANCELED', 'REFUNDED') GROUP BY sku_id
"""
_TICKETS: Final = """
SELECT DISTINCT r.activity_id, q.message_id FROM messaging_quarantine q
  JOIN orders_reservation r ON r.reservation_id = q.reservation_id AND r.message_id = q.message_id
 WHERE q.consumer_group = %s AND q.status = 'OPEN'
   AND (%s::bigint IS NULL OR r.activity_id = %s::bigint)
"""
_DUE_STUCK: Final = """
SELECT activity_id, reservation_id FROM orders_reservation
 WHERE release_state = 'DUE' AND release_due_at <= clock_timestamp() - %s * interval '1 second'
   AND (%s::bigint IS NULL OR activity_id = %s::bigint)
"""
_OVERDUE: Final = """
SELECT activity_id, order_id FROM orders_order
 WHERE status IN ('CREATED', 'PAYING')
   AND expires_at <= clock_timestamp() - %s * interval '1 second'
   AND (%s::bigint IS NULL OR activity_id = %s::bigint)
"""
_ORDER: Final = f"SELECT {ORDER_COLUMNS} FROM orders_order o WHERE o.order_id = %s FOR SHARE"  # noqa: S608
_HAS_MESSAGE: Final = """
SELECT 1 FROM messaging_outbox WHERE tag = %s AND split_part(keys, ' ', 2) = %s LIMIT 1
"""
_UNRELEASED: Final = f"""
SELECT {ORDER_COLUMNS}, l.kind FROM orders_reservation r
  JOIN orders_order o ON o.order_id = r.order_id AND o.status = 'CANCELED'
  JOIN inventory_stockledger l
    ON l.source_id = o.order_id AND l.kind IN ('RESTOCK', 'WITHHELD')
 WHERE r.reservation_id = %s AND r.release_state = 'NONE'
   FOR NO KEY UPDATE OF r
"""  # noqa: S608 - constants
_MAKE_DUE: Final = """
UPDATE orders_reservation
   SET release_state = 'DUE', release_due_at = %s::timestamptz, restock = %s
 WHERE reservation_id = %s AND release_state = 'NONE'
"""


def find(scope: Scope) -> list[Difference]:
    """Look for everything in one snapshot; no locks. Cost: scans the sale's rows."""
    only = (scope.activity_id, scope.activity_id)
    with transaction.atomic(durable=True):
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        allow_long_reads()
        found = _equalities(scope)
        for sale in scope.sales:
            found += _units(sale.activity_id)
        found += [
            _difference(TICKET_WITH_OUTCOME, row, "its message has an outcome, its item is open")
            for row in fetch(_TICKETS, (CG_ORDER_CREATE, *only))
        ]
        found += [
            _difference(DUE_STUCK, row, f"DUE for more than {STUCK_S} s")
            for row in fetch(_DUE_STUCK, (STUCK_S, *only))
        ]
        found += [
            _difference(OVERDUE_STUCK, row, f"unpaid {STUCK_S} s past its expiry")
            for row in fetch(_OVERDUE, (STUCK_S, *only))
        ]
    return found


def add_event(difference: Difference) -> Outcome:
    """Write the ORDER_CREATED that is missing, with the order as it is now."""
    return _add(difference, ORDER_CREATED)


def add_trigger(difference: Difference) -> Outcome:
    """Write the cancel trigger that is missing; it changes nothing when the order is paid."""
    return _add(difference, "CANCEL_IF_UNPAID")


def make_due(difference: Difference) -> Outcome:
    """Release a cancelled order's reservation: its units came back in PostgreSQL, not further."""
    now = begin()
    rows = fetch(_UNRELEASED, (difference.subject,))
    if not rows:
        return Outcome.UNPROVEN  # no return in the ledger: whether units came back is not known
    order, kind = order_record(rows[0][:-1]), rows[0][-1]
    restock = kind == "RESTOCK"
    execute(_MAKE_DUE, (now, restock, difference.subject))
    outbox.add([release_command(order, restock=restock, now=now)])
    return Outcome.REPAIRED


def resolve_ticket(difference: Difference) -> Outcome:
    """Close the item of a message that has an outcome: nobody needs to decide any more."""
    closed = quarantine.resolve(
        group=CG_ORDER_CREATE, message_ids=[difference.subject], resolution="OUTCOME"
    )
    return Outcome.REPAIRED if closed else Outcome.GONE


def _add(difference: Difference, tag: str) -> Outcome:
    now = begin()
    rows = fetch(_ORDER, (difference.subject,))
    if not rows:
        return Outcome.GONE
    if fetch(_HAS_MESSAGE, (tag, difference.subject)):
        return Outcome.GONE
    order = order_record(rows[0])
    message = (
        order_event(ORDER_CREATED, order, now=now)
        if tag == ORDER_CREATED
        else cancel_trigger(order, now=now)
    )
    outbox.add([message])
    return Outcome.REPAIRED


def _equalities(scope: Scope) -> list[Difference]:
    params = {
        "activity": scope.activity_id,
        "group": CG_ORDER_CREATE,
        "inbox_days": settings.SECKILL_INBOX_DAYS - 1,
        "outbox_days": settings.SECKILL_OUTBOX_DAYS - 1,
    }
    found = []
    for equality in EQUALITIES:
        with connection.cursor() as cursor:
            cursor.execute(equality.sql, params)
            found += [
                _difference(equality.kind, row, f"breaks: {equality.rule}")
                for row in cursor.fetchall()
            ]
    return found


def _units(activity_id: int) -> list[Difference]:
    live = dict(fetch(_LIVE_UNITS, (activity_id,)))
    found = []
    for sku in selectors.conservation(activity_id):
        supply = sku.initial + sku.topped_up - sku.cut
        kept = sku.available + live.get(sku.sku_id, 0) + sku.withheld
        ledger = (
            sku.ledger_initial + sku.ledger_topped_up - sku.ledger_cut - supply,
            sku.ledger_withheld - sku.withheld,
            sku.ledger_delta - sku.available,
        )
        if supply != kept or any(ledger):
            found.append(
                Difference(
                    kind=STOCK,
                    activity_id=activity_id,
                    subject=f"SKU {sku.sku_id}",
                    detail=f"supply {supply}, available {sku.available} + live"
                    f" {live.get(sku.sku_id, 0)} + withheld {sku.withheld} = {kept};"
                    f" the ledger differs by {ledger} (supply, withheld, available)",
                )
            )
    return found


def _difference(kind: str, row: tuple[Any, ...], detail: str) -> Difference:
    return Difference(kind=kind, activity_id=row[0], subject=str(row[1]), detail=detail)

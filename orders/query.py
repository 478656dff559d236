"""The query half of the projection: `orders_query`, one row an order, and its rebuild.

Events come late, doubled and out of order; each carries the whole row, so the highest version wins
and a skipped one loses nothing. A reject is no order: it has no row here. Buyers' own lists stay
on `orders_order` (they must see what they just bought); operators' searches live here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from django.db import transaction

from orders.contracts import ORDER_REJECTED, OrderEvent
from orders.database import begin, execute, fetch

_COLUMNS: Final = (
    "order_id, reservation_id, request_id, activity_id, sku_id, user_id, quantity, amount_cents,"
    " currency, status, reason, created_at, expires_at, paid_at, canceled_at, payment_id,"
    " aggregate_version"
)
_SET: Final = ", ".join(
    f"{name} = excluded.{name}" for name in _COLUMNS.split(", ") if name != "order_id"
)

# Newer rows replace older ones; equal and older versions change nothing.
_UPSERT: Final = f"""
INSERT INTO orders_query AS q ({_COLUMNS})
SELECT order_id, reservation_id, request_id, activity_id, sku_id, user_id, quantity, amount_cents,
    currency, status, reason, created_at::timestamptz, nullif(expires_at, '')::timestamptz,
    nullif(paid_at, '')::timestamptz, nullif(canceled_at, '')::timestamptz, payment_id,
    aggregate_version
FROM unnest(%b::text[], %b::text[], %b::text[], %b::bigint[], %b::bigint[], %b::text[], %b::int[],
    %b::bigint[], %b::text[], %b::text[], %b::text[], %b::text[], %b::text[], %b::text[],
    %b::text[], %b::text[], %b::int[])
    AS row({_COLUMNS})
ON CONFLICT (order_id) DO UPDATE SET {_SET}, projected_at = now()
WHERE q.aggregate_version < excluded.aggregate_version
"""  # noqa: S608 - constants

_SOURCE: Final = """
SELECT o.order_id, o.reservation_id, o.request_id, o.activity_id, o.sku_id, o.user_id, o.quantity,
    o.amount_cents, o.currency, o.status, o.cancel_reason AS reason, o.created_at, o.expires_at,
    o.paid_at, o.canceled_at, o.payment_id, o.aggregate_version
FROM orders_order o
WHERE o.order_id > %s AND (%s::bigint IS NULL OR o.activity_id = %s::bigint)
ORDER BY o.order_id LIMIT %s
"""

# Rows of a page that are missing, behind, or of the same version and different all the same.
_COMPARE: Final = f"""
WITH page AS ({_SOURCE})
SELECT count(*), max(page.order_id), count(*) FILTER (WHERE q.order_id IS NULL),
    count(*) FILTER (WHERE q.aggregate_version < page.aggregate_version),
    count(*) FILTER (WHERE q.aggregate_version = page.aggregate_version AND
        (q.status, q.reason, q.user_id, q.quantity, q.amount_cents, q.payment_id, q.expires_at,
         q.paid_at, q.canceled_at) IS DISTINCT FROM
        (page.status, page.reason, page.user_id, page.quantity, page.amount_cents, page.payment_id,
         page.expires_at, page.paid_at, page.canceled_at))
FROM page LEFT JOIN orders_query q USING (order_id)
"""  # noqa: S608 - constants

# A newer event may arrive meanwhile: its version is higher, and stays.
_REBUILD: Final = f"""
WITH page AS ({_SOURCE})
INSERT INTO orders_query AS q ({_COLUMNS}) SELECT {_COLUMNS} FROM page ORDER BY order_id
ON CONFLICT (order_id) DO UPDATE SET {_SET}, projected_at = now()
WHERE q.aggregate_version <= excluded.aggregate_version
    AND (q.status, q.reason, q.user_id, q.quantity, q.amount_cents, q.payment_id, q.expires_at,
         q.paid_at, q.canceled_at, q.aggregate_version) IS DISTINCT FROM
        (excluded.status, excluded.reason, excluded.user_id, excluded.quantity,
         excluded.amount_cents, excluded.payment_id, excluded.expires_at, excluded.paid_at,
         excluded.canceled_at, excluded.aggregate_version)
"""  # noqa: S608 - constants

_STRAYS: Final = """
FROM orders_query q WHERE (%s::bigint IS NULL OR q.activity_id = %s::bigint)
    AND NOT EXISTS (SELECT 1 FROM orders_order o WHERE o.order_id = q.order_id)
"""

_PAGE: Final = 5_000


@dataclass(frozen=True, kw_only=True, slots=True)
class RebuildReport:
    """What a rebuild found; `repaired` is 0 in a dry run."""

    orders: int
    missing: int
    behind: int
    different: int
    strays: int
    repaired: int


def upsert(events: Sequence[OrderEvent]) -> int:
    """Bring the rows of orders to the newest of these events, in a transaction of its own.

    Args:
        events: any number, in any order, doubles allowed.

    Returns:
        How many rows changed.

    Cost: two statements; rows are written in key order.
    """
    newest: dict[str, OrderEvent] = {}
    for event in events:
        if event.event_type == ORDER_REJECTED:
            continue
        known = newest.get(event.order_id)
        if known is None or known.aggregate_version < event.aggregate_version:
            newest[event.order_id] = event
    if not newest:
        return 0
    rows = [(newest[order_id].payload, newest[order_id]) for order_id in sorted(newest)]
    with transaction.atomic(durable=True):
        begin()
        return execute(
            _UPSERT,
            (
                [p.order_id for p, _ in rows],
                [p.reservation_id for p, _ in rows],
                [p.request_id for p, _ in rows],
                [p.activity_id for p, _ in rows],
                [p.sku_id for p, _ in rows],
                [p.user_id for p, _ in rows],
                [p.quantity for p, _ in rows],
                [p.amount_cents for p, _ in rows],
                [p.currency for p, _ in rows],
                [p.status for p, _ in rows],
                [p.reason for p, _ in rows],
                [p.created_at for p, _ in rows],
                [p.expires_at for p, _ in rows],
                [p.paid_at for p, _ in rows],
                [p.canceled_at for p, _ in rows],
                [p.payment_id for p, _ in rows],
                [event.aggregate_version for _, event in rows],
            ),
        )


def rebuild(*, activity_id: int | None = None, dry_run: bool = False) -> RebuildReport:
    """Compare the read model with the orders and make it equal; safe while everything runs.

    Args:
        activity_id: one sale only, all when None.
        dry_run: count the differences, write nothing.

    Cost: for each 5 000 orders two statements, each committed by itself.
    """
    orders = missing = behind = different = repaired = 0
    after = ""
    while True:
        page = (after, activity_id, activity_id, _PAGE)
        ((count, last, page_missing, page_behind, page_different),) = fetch(_COMPARE, page)
        if not count:
            break
        orders, missing = orders + count, missing + page_missing
        behind, different = behind + page_behind, different + page_different
        if not dry_run:
            repaired += execute(_REBUILD, page)
        after = last
    ((strays,),) = fetch("SELECT count(*) " + _STRAYS, (activity_id, activity_id))
    if strays and not dry_run:
        repaired += execute("DELETE " + _STRAYS, (activity_id, activity_id))
    return RebuildReport(
        orders=orders,
        missing=missing,
        behind=behind,
        different=different,
        strays=strays,
        repaired=repaired,
    )

"""What must hold inside PostgreSQL at any time: each entry finds the rows that break it.

All run in one REPEATABLE READ snapshot (`orders/invariants.py`), so that a sale in full motion
shows no false breach. They look at tables of three apps on purpose: that these agree is the point.
"""

from dataclasses import dataclass
from typing import Final

SAMPLES: Final = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Equality:
    """A rule and the query of what breaks it: (activity or null, id), all rows.

    The queries know `%(activity)s` (null: all sales), `%(group)s`, `%(inbox_days)s` and
    `%(outbox_days)s`.
    """

    kind: str
    rule: str
    sql: str


_MINE: Final = "(%(activity)s::bigint IS NULL OR {alias}.activity_id = %(activity)s::bigint)"
_ORDER_MINE: Final = _MINE.format(alias="o")
_ROW_MINE: Final = _MINE.format(alias="r")
_LEDGER_MINE: Final = _MINE.format(alias="l")


# When the money of a refunded order was back. Without its refund (a breach of the money) the day
# of the payment stands for it: an older one, so that nothing is asked of a day that was dropped.
_REFUNDED_AT: Final = """coalesce((SELECT r.settled_at FROM orders_refund r
  WHERE r.attempt_id = o.payment_id AND r.status = 'SUCCEEDED'), o.paid_at)"""


def _outbox(tag: str, *, since: str = "o.created_at", status: str = "") -> str:
    """Orders that the outbox must still know, without a row of this tag (keys: rsv, ord, req).

    Args:
        tag: the message's kind.
        since: when the order's transaction wrote it; null: it has not. Days of the outbox are
            dropped after that instant, not after the order's own.
        status: only orders of this status; empty: all.
    """
    only = f"AND o.status = '{status}'" if status else ""
    return f"""
SELECT o.activity_id, o.order_id FROM orders_order o
 WHERE {_ORDER_MINE} {only} AND {since} > now() - %(outbox_days)s * interval '1 day'
EXCEPT
SELECT o.activity_id, o.order_id FROM orders_order o
  JOIN messaging_outbox x ON x.tag = '{tag}' AND split_part(x.keys, ' ', 2) = o.order_id
 WHERE {_ORDER_MINE}
"""  # noqa: S608 - constants


EQUALITIES: Final = (
    Equality(
        kind="inbox_created_without_order",
        rule="every inbox row CREATED has its order",
        sql="""
SELECT NULL::bigint, i.message_id FROM messaging_inbox i
  LEFT JOIN orders_order o ON o.order_id = i.order_id
 WHERE i.consumer_group = %(group)s AND i.outcome = 'CREATED' AND o.order_id IS NULL
""",
    ),
    Equality(
        kind="inbox_rejected_without_row",
        rule="every inbox row REJECTED has its terminal reservation row",
        sql="""
SELECT NULL::bigint, i.message_id FROM messaging_inbox i
  LEFT JOIN orders_reservation r
    ON r.reservation_id = i.reservation_id AND r.outcome = 'REJECTED'
 WHERE i.consumer_group = %(group)s AND i.outcome = 'REJECTED' AND r.reservation_id IS NULL
""",
    ),
    Equality(
        kind="reservation_without_inbox",
        rule="every outcome was written under its message's inbox row",
        sql=f"""
SELECT r.activity_id, r.reservation_id FROM orders_reservation r
  LEFT JOIN messaging_inbox i ON i.consumer_group = %(group)s AND i.message_id = r.message_id
 WHERE {_ROW_MINE} AND i.message_id IS NULL
   AND r.created_at > now() - %(inbox_days)s * interval '1 day'
""",  # noqa: S608
    ),
    Equality(
        kind="order_without_reservation",
        rule="every order has its reservation row, ORDERED",
        sql=f"""
SELECT o.activity_id, o.order_id FROM orders_order o
  LEFT JOIN orders_reservation r
    ON r.reservation_id = o.reservation_id AND r.order_id = o.order_id AND r.outcome = 'ORDERED'
 WHERE {_ORDER_MINE} AND r.reservation_id IS NULL
""",  # noqa: S608
    ),
    Equality(
        kind="ordered_without_order",
        rule="every reservation row ORDERED has its order",
        sql=f"""
SELECT r.activity_id, r.reservation_id FROM orders_reservation r
  LEFT JOIN orders_order o ON o.order_id = r.order_id AND o.reservation_id = r.reservation_id
 WHERE {_ROW_MINE} AND r.outcome = 'ORDERED' AND o.order_id IS NULL
""",  # noqa: S608
    ),
    Equality(
        kind="duplicate_live_order",
        rule="a user has at most one live order of a SKU",
        sql=f"""
SELECT o.activity_id, string_agg(o.order_id, ' ') FROM orders_order o
 WHERE {_ORDER_MINE} AND o.status NOT IN ('CANCELED', 'REFUNDED')
 GROUP BY o.activity_id, o.sku_id, o.user_id HAVING count(*) > 1
""",  # noqa: S608
    ),
    Equality(
        kind="item_mismatch",
        rule="an order has one item: its SKU's, its quantity, the frozen price, in sum its amount",
        sql=f"""
SELECT o.activity_id, o.order_id FROM orders_order o
  LEFT JOIN orders_item i ON i.order_id = o.order_id
  LEFT JOIN inventory_sku s ON s.id = o.sku_id
 WHERE {_ORDER_MINE}
 GROUP BY o.order_id, s.id
HAVING count(i.id) <> 1 OR max(i.sku_id) <> o.sku_id OR max(i.quantity) <> o.quantity
    OR sum(i.quantity * i.price_cents) <> o.amount_cents
    OR max(i.price_cents) IS DISTINCT FROM s.price_cents
    OR max(i.currency) IS DISTINCT FROM s.currency OR o.currency IS DISTINCT FROM s.currency
    OR o.activity_id IS DISTINCT FROM s.activity_id
""",  # noqa: S608
    ),
    Equality(
        kind="order_without_sale",
        rule="every order has its SALE line, of its quantity",
        sql=f"""
SELECT o.activity_id, o.order_id FROM orders_order o
  LEFT JOIN inventory_stockledger l ON l.source_id = o.order_id AND l.kind = 'SALE'
 WHERE {_ORDER_MINE} AND (l.delta IS DISTINCT FROM -o.quantity OR l.sku_id <> o.sku_id)
""",  # noqa: S608
    ),
    Equality(
        kind="sale_without_order",
        rule="every SALE line has its order",
        sql=f"""
SELECT l.activity_id, l.source_id FROM inventory_stockledger l
  LEFT JOIN orders_order o ON o.order_id = l.source_id
 WHERE {_LEDGER_MINE} AND l.kind = 'SALE' AND o.order_id IS NULL
""",  # noqa: S608
    ),
    Equality(
        kind="canceled_without_return",
        rule="a cancelled order's units came back once: RESTOCK or WITHHELD",
        sql=f"""
SELECT o.activity_id, o.order_id FROM orders_order o
  LEFT JOIN inventory_stockledger l
    ON l.source_id = o.order_id AND l.kind IN ('RESTOCK', 'WITHHELD')
 WHERE {_ORDER_MINE} AND o.status = 'CANCELED'
 GROUP BY o.order_id HAVING count(l.id) <> 1 OR max(l.units) <> o.quantity
""",  # noqa: S608
    ),
    Equality(
        kind="live_with_return",
        rule="a live order's units did not come back",
        sql=f"""
SELECT o.activity_id, o.order_id FROM orders_order o
  JOIN inventory_stockledger l
    ON l.source_id = o.order_id AND l.kind IN ('RESTOCK', 'WITHHELD')
 WHERE {_ORDER_MINE} AND o.status NOT IN ('CANCELED', 'REFUNDED')
""",  # noqa: S608
    ),
    Equality(
        kind="ended_without_release",
        rule="what was rejected or cancelled has a release, DUE or DONE",
        sql=f"""
SELECT r.activity_id, r.reservation_id FROM orders_reservation r
  LEFT JOIN orders_order o ON o.order_id = r.order_id AND r.outcome = 'ORDERED'
 WHERE {_ROW_MINE} AND r.release_state = 'NONE'
   AND (r.outcome = 'REJECTED' OR o.status = 'CANCELED')
""",  # noqa: S608
    ),
    Equality(
        kind="live_with_release",
        rule="a live order's reservation is not released",
        sql=f"""
SELECT r.activity_id, r.reservation_id FROM orders_reservation r
  JOIN orders_order o ON o.order_id = r.order_id AND r.outcome = 'ORDERED'
 WHERE {_ROW_MINE} AND r.release_state <> 'NONE'
   AND o.status NOT IN ('CANCELED', 'REFUNDED')
""",  # noqa: S608
    ),
    Equality(
        kind="order_without_event",
        rule="every order has its ORDER_CREATED in the outbox",
        sql=_outbox("ORDER_CREATED"),
    ),
    Equality(
        kind="order_without_trigger",
        rule="every order has its cancel trigger in the outbox",
        sql=_outbox("CANCEL_IF_UNPAID"),
    ),
    # By its instant, not by status: an order that was paid and refunded had both events.
    Equality(
        kind="paid_without_event",
        rule="every order that was ever paid has its ORDER_PAID in the outbox",
        sql=_outbox("ORDER_PAID", since="o.paid_at"),
    ),
    Equality(
        kind="canceled_without_event",
        rule="every cancelled order has its ORDER_CANCELED in the outbox",
        sql=_outbox("ORDER_CANCELED", since="o.canceled_at"),
    ),
    Equality(
        kind="refunded_without_event",
        rule="every refunded order has its ORDER_REFUNDED in the outbox",
        sql=_outbox("ORDER_REFUNDED", since=_REFUNDED_AT, status="REFUNDED"),
    ),
)

"""The money table: what came in is kept, refunded, or due to be refunded. To the cent.

Each column comes from another table: what came in from captured attempts, what is kept from the
orders that are paid, what is refunded and due from the refunds. So a payment that nobody owns, an
order paid by nothing, or a refund of what was never captured makes the sums differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from orders.database import fetch
from orders.payments.port import BookEntry, PaymentProvider, ProviderState

# One line for each order of the sale with any money: the base of table and breaches. An order looks
# up its own payments and refunds. Grouped apart they are all that were ever made, and on statistics
# from before the sale they were read once for each order: 6 000 orders took 14 s, this way 0.1 s.
_PER_ORDER: Final = """
SELECT o.order_id, o.currency,
       coalesce(paid.captured, 0)::bigint AS money_in,
       CASE WHEN o.status IN ('PAID', 'FULFILLING', 'FULFILLED') THEN o.amount_cents
            ELSE 0 END::bigint AS kept,
       coalesce(given.refunded, 0)::bigint AS refunded,
       coalesce(given.due, 0)::bigint AS due,
       coalesce(paid.unclear, 0)::bigint AS payment_unknown,
       coalesce(given.unclear, 0)::bigint AS refund_unknown
  FROM orders_order o
 CROSS JOIN LATERAL (
  SELECT count(*) AS attempts,
         sum(a.amount_cents) FILTER (WHERE a.status = 'SUCCEEDED') AS captured,
         sum(a.amount_cents) FILTER (WHERE a.status = 'SUBMIT_UNKNOWN') AS unclear
    FROM orders_payment_attempt a WHERE a.order_id = o.order_id) AS paid
 CROSS JOIN LATERAL (
  SELECT count(*) AS refunds,
         sum(r.amount_cents) FILTER (WHERE r.status = 'SUCCEEDED') AS refunded,
         sum(r.amount_cents) FILTER (WHERE r.status IN ('DUE', 'SUBMITTED', 'FAILED')) AS due,
         sum(r.amount_cents) FILTER (WHERE r.status = 'SUBMIT_UNKNOWN') AS unclear
    FROM orders_refund r WHERE r.order_id = o.order_id) AS given
 WHERE {scope}
   AND (paid.attempts > 0 OR given.refunds > 0
        OR o.status IN ('PAID', 'FULFILLING', 'FULFILLED', 'REFUNDING', 'REFUNDED'))
"""
_TABLE: Final = f"""
SELECT currency, sum(money_in)::bigint, sum(kept)::bigint, sum(refunded)::bigint,
       sum(due)::bigint, sum(payment_unknown)::bigint, sum(refund_unknown)::bigint
  FROM ({_PER_ORDER}) AS per_order GROUP BY currency ORDER BY currency
"""  # noqa: S608 - constants
_UNEVEN: Final = f"""
SELECT order_id, money_in, kept, refunded, due, refund_unknown
  FROM ({_PER_ORDER}) AS per_order
 WHERE money_in <> kept + refunded + due + refund_unknown
 ORDER BY order_id LIMIT 100
"""  # noqa: S608 - constants
# The order names the attempt that it keeps; a refund is of one captured attempt, whole.
_MISMATCHED: Final = """
SELECT o.order_id, 'its payment_id names no captured attempt of it'
  FROM orders_order o
  LEFT JOIN orders_payment_attempt a
    ON a.attempt_id = o.payment_id AND a.order_id = o.order_id AND a.status = 'SUCCEEDED'
 WHERE {scope}
   AND o.status IN ('PAID', 'FULFILLING', 'FULFILLED', 'REFUNDING', 'REFUNDED')
   AND (a.attempt_id IS NULL OR a.amount_cents <> o.amount_cents OR a.currency <> o.currency)
UNION ALL
SELECT o.order_id, 'refund ' || r.refund_id || ' is not of a captured attempt and its amount'
  FROM orders_refund r
  JOIN orders_order o ON o.order_id = r.order_id
  JOIN orders_payment_attempt a ON a.attempt_id = r.attempt_id
 WHERE {scope}
   AND (a.status <> 'SUCCEEDED' OR a.order_id <> r.order_id
        OR a.amount_cents <> r.amount_cents OR a.currency <> r.currency)
UNION ALL
SELECT o.order_id, o.status || ', but its refund is ' || coalesce(r.status, 'missing')
  FROM orders_order o
  LEFT JOIN orders_refund r ON r.attempt_id = o.payment_id
 WHERE {scope}
   AND ((o.status = 'REFUNDED' AND r.status IS DISTINCT FROM 'SUCCEEDED')
        OR (o.status = 'REFUNDING' AND coalesce(r.status, 'SUCCEEDED') = 'SUCCEEDED')
        OR (o.status IN ('PAID', 'FULFILLING', 'FULFILLED') AND r.refund_id IS NOT NULL))
 LIMIT 100
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class MoneyRow:
    """The sums of one currency, in cents. The unknown ones are apart and 0 at rest."""

    currency: str
    money_in: int
    kept: int
    refunded: int
    refund_due: int
    payment_unknown: int  # may have been captured: not in money_in
    refund_unknown: int  # may have been refunded: in neither refunded nor refund_due

    @property
    def at_rest(self) -> bool:
        """Whether nothing is unknown."""
        return self.payment_unknown == 0 and self.refund_unknown == 0


def money_table(activity_id: int | None = None) -> list[MoneyRow]:
    """Return the money of a sale, or of all, one row for each currency.

    Cost: one statement; reads orders_order, and payments and refunds of the sale's orders only.
    """
    return [
        MoneyRow(
            currency=row[0],
            money_in=row[1],
            kept=row[2],
            refunded=row[3],
            refund_due=row[4],
            payment_unknown=row[5],
            refund_unknown=row[6],
        )
        for row in _fetch(_TABLE, activity_id)
    ]


def money_breaches(activity_id: int | None = None) -> list[str]:
    """Return what is wrong with the money of a sale, or of all: one line each, [] when exact.

    It holds at any moment, in one snapshot: call it inside the caller's REPEATABLE READ
    transaction together with other checks, or alone.

    Cost: two statements.
    """
    lines = [
        f"order {order_id}: in {money_in} is not kept {kept} + refunded {refunded} + due {due}"
        f" + unknown {unknown} (cents)"
        for order_id, money_in, kept, refunded, due, unknown in _fetch(_UNEVEN, activity_id)
    ]
    found = _fetch(_MISMATCHED, activity_id)
    return lines + [f"order {order_id}: {what}" for order_id, what in found]


def _fetch(sql: str, activity_id: int | None) -> list[tuple[Any, ...]]:
    """Ask for one sale or for all: two texts, as no single plan is good for both."""
    if activity_id is None:
        return fetch(sql.format(scope="true"))
    return fetch(sql.format(scope="o.activity_id = %s"), (activity_id,) * sql.count("{scope}"))


@dataclass(frozen=True, kw_only=True, slots=True)
class BookDifference:
    """Something that our books and the provider's tell differently."""

    kind: str  # MISSING_HERE, MISSING_THERE, STATE, AMOUNT
    order_id: str
    key: str
    ours: str
    theirs: str
    provider_id: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class BookComparison:
    """Both books side by side. `foreign`: entries of orders that are not ours (another system)."""

    compared: int
    foreign: int
    differences: Sequence[BookDifference]


_OURS: Final = """
SELECT a.attempt_id, a.order_id, a.status, a.amount_cents, a.currency, false
     , a.outside_reference <> ''
  FROM orders_payment_attempt a WHERE a.provider = %s
UNION ALL
SELECT r.provider_key, r.order_id, r.status, r.amount_cents, r.currency, true
     , r.outside_reference <> ''
  FROM orders_refund r WHERE r.provider = %s AND r.submit_count > 0
"""
_KNOWN_ORDERS: Final = "SELECT order_id FROM orders_order WHERE order_id = ANY(%b::text[])"


def compare_book(provider: PaymentProvider, *, page: int = 500) -> BookComparison:
    """Compare every settled row of ours with the provider's own book.

    Rows that are still open here are no difference: their loops will ask. Nor are those that an
    operator settled outside: the provider cannot know.

    Raises:
        ProviderUnavailable: the book cannot be read now.

    Cost: reads the whole book and all attempts: for a schedule, not for a page.
    """
    entries: dict[tuple[bool, str], BookEntry] = {}
    cursor = 0
    while True:
        lines, cursor = provider.book(after=cursor, limit=page)
        entries |= {(line.is_refund, line.key): line for line in lines}
        if not cursor:
            break
    differences: list[BookDifference] = []
    ours = fetch(_OURS, (provider.name, provider.name))
    for key, order_id, status, amount, currency, is_refund, is_outside in ours:
        entry = entries.pop((is_refund, key), None)
        if is_outside:
            continue
        difference = _difference(key, order_id, status, (amount, currency), entry)
        if difference is not None:
            differences.append(difference)
    references = sorted({entry.reference for entry in entries.values()})
    known = {row[0] for row in fetch(_KNOWN_ORDERS, (references,))} if references else set()
    differences += [
        BookDifference(
            kind="MISSING_HERE",
            order_id=entry.reference,
            key=entry.key,
            ours="",
            theirs=entry.state.value,
            provider_id=entry.provider_id,
        )
        for entry in entries.values()
        if entry.reference in known and entry.state is not ProviderState.FAILED
    ]
    foreign = sum(entry.reference not in known for entry in entries.values())
    return BookComparison(compared=len(ours), foreign=foreign, differences=differences)


def _difference(
    key: str, order_id: str, status: str, amount: tuple[int, str], entry: BookEntry | None
) -> BookDifference | None:
    if entry is None:
        if status != "SUCCEEDED":
            return None
        return BookDifference(
            kind="MISSING_THERE", order_id=order_id, key=key, ours=status, theirs=""
        )
    moved_here, moved_there = status == "SUCCEEDED", entry.state is ProviderState.SUCCEEDED
    settled = status in {"SUCCEEDED", "FAILED"}
    if settled and moved_here != moved_there:
        kind, mine, theirs = "STATE", status, entry.state.value
    elif settled and moved_here and (entry.amount_cents, entry.currency) != amount:
        kind, mine, theirs = "AMOUNT", str(amount[0]), str(entry.amount_cents)
    else:
        return None
    return BookDifference(
        kind=kind,
        order_id=order_id,
        key=key,
        ours=mine,
        theirs=theirs,
        provider_id=entry.provider_id,
    )

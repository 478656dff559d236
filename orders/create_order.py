"""THE order transaction: a batch of CREATE_ORDER messages becomes orders, or rejects, at once.

    inbox -> expired and void ones rejected -> orders, items, reservations -> ledger, outbox
          -> stock rows locked in key order, one conditional update -> COMMIT   (the caller acks)

Every statement is set-based and idempotent by ON CONFLICT: after a duplicate-key error a
PostgreSQL transaction is dead. A batch that cannot be applied whole raises; the consumer loop then
calls again with one message at a time, where each oddity has its own answer.
Source: docs/flow.md, docs/protocol.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db import transaction
from django.utils import timezone

import faultpoint
from inventory import stock
from inventory.contracts import SkuTerms
from inventory.errors import OutOfStock
from inventory.selectors import sku_terms
from inventory.stock import Sale
from messaging import inbox, outbox, quarantine, spans
from messaging.disposition import DONE, DUPLICATE, Decision, Disposition, rejected
from messaging.disposition import quarantine as to_quarantine
from messaging.outbox import OutboxMessage
from messaging.partitions import message_id_bound
from messaging.topology import CG_ORDER_CREATE
from orders import metrics
from orders.contracts import ORDER_CREATED, CreateOrder
from orders.database import begin, fetch
from orders.errors import OrdersError
from orders.events import OrderRecord, cancel_trigger, order_event
from orders.projection import confirm_known
from orders.reject_order import (
    CREATED,
    REJECTED,
    STALE_NOOP,
    KnownReservation,
    inbox_entry,
    is_expired,
    known_reservations,
    rearm,
    valid_extensions,
    write_rejects,
)
from orders.states import OrderStatus, RejectReason, ReservationOutcome

# One statement, so that the arrays travel once; the returned rows are complete in all three tables.
_INSERT_ORDERS: Final = """
WITH input AS MATERIALIZED (
  SELECT m.*, t.activity_id, t.price_cents, t.currency, t.expires_at
    FROM unnest(%b::text[], %b::text[], %b::text[], %b::text[], %b::text[], %b::text[], %b::text[],
                %b::bigint[], %b::int[])
         WITH ORDINALITY
         AS m(order_id, reservation_id, request_id, message_id, user_id, traceparent, valid_until,
              sku_id, quantity, position)
    JOIN unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::text[], %b::timestamptz[])
         AS t(sku_id, activity_id, price_cents, currency, expires_at) USING (sku_id)
   ORDER BY m.position
), made AS (
  INSERT INTO orders_order
    (order_id, reservation_id, request_id, activity_id, sku_id, user_id, quantity, amount_cents,
     currency, status, aggregate_version, created_at, expires_at, payment_id, cancel_reason,
     traceparent)
  SELECT order_id, reservation_id, request_id, activity_id, sku_id, user_id, quantity,
         quantity * price_cents, currency, 'CREATED', 1, %s::timestamptz, expires_at, '', '',
         traceparent
    FROM input
   ORDER BY position
  ON CONFLICT DO NOTHING
  RETURNING order_id
), items AS (
  INSERT INTO orders_item (order_id, sku_id, quantity, price_cents, currency)
  SELECT order_id, sku_id, quantity, price_cents, currency FROM made JOIN input USING (order_id)
)
INSERT INTO orders_reservation
  (reservation_id, message_id, request_id, order_id, activity_id, sku_id, user_id, quantity,
   outcome, reject_reason, release_state, restock, valid_until, created_at)
SELECT reservation_id, message_id, request_id, order_id, activity_id, sku_id, user_id, quantity,
       'ORDERED', '', 'NONE', true, valid_until::timestamptz, %s::timestamptz
  FROM made JOIN input USING (order_id)
 ORDER BY reservation_id
ON CONFLICT DO NOTHING
RETURNING order_id
"""

_LIVE_ORDER: Final = """
SELECT 1 FROM orders_order
 WHERE activity_id = %s AND sku_id = %s AND user_id = %s
   AND status NOT IN ('CANCELED', 'REFUNDED')
"""


# A copy of a message whose open quarantine row waits for a person: counted there, acked.
HELD: Final = Decision(disposition=Disposition.ACK_DUPLICATE, reason="HELD")


@dataclass(frozen=True, kw_only=True, slots=True)
class Incoming:
    """A decoded message and the broker's count of its deliveries."""

    message: CreateOrder
    delivery_attempt: int


class OrderConflict(OrdersError):
    """A member of the batch meets an order or reservation that exists: run one by one."""


@dataclass(slots=True)
class _Batch:
    """What one run of the transaction collects."""

    now: datetime
    terms: dict[int, SkuTerms]
    decisions: dict[str, Decision] = field(default_factory=dict)
    out: list[OutboxMessage] = field(default_factory=list)
    known: list[KnownReservation] = field(default_factory=list)


def create_orders(messages: Sequence[Incoming]) -> list[Decision]:
    """Turn messages into orders or rejects, in one transaction.

    Args:
        messages: up to SECKILL_BATCH_MAX; equal ids are collapsed, the first counts.

    Returns:
        One decision for each message, in the same order: everything that says ACK is committed.

    Raises:
        OrderConflict, ReservationConflict, OutOfStock: the batch cannot be applied whole; nothing
            is written; call again with one message each.

    Cost: ten round trips for a clean batch of any size, the stock rows locked for the last two.
    """
    oldest = _oldest_kept_id()
    decisions: dict[str, Decision] = {}
    fresh: dict[str, Incoming] = {}
    for item in messages:
        if item.message.message_id < oldest:
            decisions[item.message.message_id] = to_quarantine("OLDER_THAN_INBOX")
        else:
            fresh.setdefault(item.message.message_id, item)
    known: list[KnownReservation] = []
    if fresh:
        with (
            metrics.ORDER_TX_LATENCY.time(),
            spans.step("order transaction"),
            transaction.atomic(durable=True),
        ):
            batch = _apply(list(fresh.values()))
            faultpoint.hit("consumer.before_commit")
        decisions |= batch.decisions
        known = batch.known
        metrics.count_orders(
            item.message.reservation_created_at
            for message_id, item in fresh.items()
            if batch.decisions[message_id] == DONE
        )
    confirm_known([one for one in known if one.wants_confirm])
    seen: set[str] = set()
    return [_once(item.message.message_id, decisions, seen) for item in messages]


def _once(message_id: str, decisions: dict[str, Decision], seen: set[str]) -> Decision:
    """Answer the copies of one id inside a batch: the first got the result, the rest repeat it."""
    decision = decisions[message_id]
    if message_id in seen and decision.disposition.startswith("ACK"):
        return DUPLICATE
    seen.add(message_id)
    return decision


def _apply(items: Sequence[Incoming]) -> _Batch:
    """Run the steps, one under the other."""
    batch = _Batch(now=begin(), terms=sku_terms(sorted({i.message.sku_id for i in items})))
    verdicts = _judge(items, batch)
    judged = [item for item in items if item.message.message_id in verdicts]
    new = inbox.claim(
        group=CG_ORDER_CREATE,
        entries=[
            inbox_entry(
                item.message,
                reason=verdicts[item.message.message_id],
                delivery_attempt=item.delivery_attempt,
            )
            for item in judged
        ],
    )
    fresh = [item.message for item in judged if item.message.message_id in new]
    _settle_known([i.message for i in judged if i.message.message_id not in new], batch)

    rejects = [(m, reason) for m in fresh if (reason := verdicts[m.message_id])]
    orders = [m for m in fresh if verdicts[m.message_id] is None]
    if len(items) == 1:
        if fresh:
            _one(fresh[0], verdicts[fresh[0].message_id], batch)
    else:
        _reject(rejects, batch)
        _make_orders(orders, batch)
    if judged:
        # Whoever got an outcome here no longer waits for a person.
        quarantine.resolve(
            group=CG_ORDER_CREATE,
            message_ids=sorted(item.message.message_id for item in judged),
            resolution="OUTCOME",
        )
    if batch.out:
        outbox.add(batch.out)
    if len(items) > 1 and orders:
        stock.take(_demand(orders))
    return batch


def _judge(items: Sequence[Incoming], batch: _Batch) -> dict[str, RejectReason | None]:
    """Decide what each message may become; what gets no verdict is decided here and now.

    A held message past its deadline is no reject: its ticket ends it. Before the deadline, or with
    an extension row, it makes its order like any other.
    """
    verdicts: dict[str, RejectReason | None] = {}
    expired: list[CreateOrder] = []
    for item in items:
        message = item.message
        terms = batch.terms.get(message.sku_id)
        if terms is None or terms.activity_id != message.activity_id:
            batch.decisions[message.message_id] = to_quarantine("UNKNOWN_SKU")
            continue
        verdicts[message.message_id] = RejectReason.ACTIVITY_VOIDED if terms.voided else None
        if is_expired(message, now=batch.now):
            expired.append(message)
    if not expired:
        return verdicts
    extended = valid_extensions([m.reservation_id for m in expired], now=batch.now)
    ids = [m.message_id for m in expired if m.reservation_id not in extended]
    held = quarantine.held(group=CG_ORDER_CREATE, message_ids=ids, lock=True)
    settled = inbox.outcomes(group=CG_ORDER_CREATE, message_ids=sorted(held)) if held else {}
    waiting = held - settled.keys()
    quarantine.seen_again(group=CG_ORDER_CREATE, message_ids=sorted(waiting))
    for message_id in ids:
        if message_id in waiting:
            del verdicts[message_id]
            batch.decisions[message_id] = HELD
        else:
            verdicts[message_id] = RejectReason.RESERVATION_EXPIRED
    return verdicts


def _settle_known(messages: Sequence[CreateOrder], batch: _Batch) -> None:
    """Ack what the inbox knows; make up for a release or a confirm that may have been lost."""
    if not messages:
        return
    batch.known = known_reservations(m.reservation_id for m in messages)
    batch.out += rearm(batch.known, now=batch.now)
    batch.decisions |= {m.message_id: DUPLICATE for m in messages}


def _reject(rejects: Sequence[tuple[CreateOrder, RejectReason]], batch: _Batch) -> None:
    if rejects:
        batch.out += write_rejects(rejects, now=batch.now)
        batch.decisions |= {m.message_id: rejected(reason.value) for m, reason in rejects}


def _make_orders(messages: Sequence[CreateOrder], batch: _Batch) -> None:
    """Insert orders, items, reservations and ledger lines; collect their messages.

    Raises:
        OrderConflict: one of them exists, or its buyer has a live order.
    """
    if not messages:
        return
    # Equal reservations have equal buyers: in this order no two batches wait for each other.
    rows = sorted(messages, key=lambda m: (m.activity_id, m.sku_id, m.user_id, m.order_id))
    terms = [batch.terms[sku_id] for sku_id in sorted({m.sku_id for m in rows})]
    expires_at = {t.sku_id: batch.now + timedelta(seconds=t.pay_window_s) for t in terms}
    made = fetch(
        _INSERT_ORDERS,
        (
            [m.order_id for m in rows],
            [m.reservation_id for m in rows],
            [m.request_id for m in rows],
            [m.message_id for m in rows],
            [m.user_id for m in rows],
            [m.trace.traceparent for m in rows],
            [m.reservation_valid_until for m in rows],
            [m.sku_id for m in rows],
            [m.quantity for m in rows],
            [t.sku_id for t in terms],
            [t.activity_id for t in terms],
            [t.price_cents for t in terms],
            [t.currency for t in terms],
            [expires_at[t.sku_id] for t in terms],
            batch.now,
            batch.now,
        ),
    )
    if len(made) != len(rows):
        raise OrderConflict
    stock.book_sales(
        [
            Sale(activity_id=m.activity_id, sku_id=m.sku_id, order_id=m.order_id, units=m.quantity)
            for m in rows
        ]
    )
    for message in rows:
        record = _created(message, batch, expires_at[message.sku_id])
        batch.out.append(order_event(ORDER_CREATED, record, now=batch.now))
        batch.out.append(cancel_trigger(record, now=batch.now))
        batch.decisions[message.message_id] = DONE


def _one(message: CreateOrder, verdict: RejectReason | None, batch: _Batch) -> None:
    """Apply a message that is alone: the stock first, so that no order is made in vain."""
    reason = verdict
    if verdict is None:
        try:
            with transaction.atomic():  # what is found later gives the unit back
                stock.take({message.sku_id: message.quantity})
                _make_orders([message], batch)
                return
        except OutOfStock:
            reason = RejectReason.NO_FINAL_STOCK
        except OrderConflict:
            reason = RejectReason.DUPLICATE_ORDER
    known = known_reservations([message.reservation_id])
    if known:
        _copy_outcome(message, known, batch)
        return
    if reason is RejectReason.DUPLICATE_ORDER and not fetch(
        _LIVE_ORDER, (message.activity_id, message.sku_id, message.user_id)
    ):
        raise OrderConflict("the order that was in the way has ended meanwhile: try again")
    assert reason is not None  # noqa: S101 - an order that was made returned above
    if reason is not verdict:
        inbox.set_outcome(
            group=CG_ORDER_CREATE,
            message_id=message.message_id,
            outcome=REJECTED,
            reason=reason.value,
        )
    _reject([(message, reason)], batch)


def _copy_outcome(message: CreateOrder, known: list[KnownReservation], batch: _Batch) -> None:
    """Another message id brought this reservation before: one effect, the same result."""
    (first,) = known
    created = first.outcome is ReservationOutcome.ORDERED
    inbox.set_outcome(
        group=CG_ORDER_CREATE,
        message_id=message.message_id,
        outcome=STALE_NOOP,
        reason=CREATED if created else first.reason,
    )
    batch.known = known
    batch.out += rearm(known, now=batch.now)
    batch.decisions[message.message_id] = DUPLICATE


def _demand(messages: Sequence[CreateOrder]) -> dict[int, int]:
    demand: dict[int, int] = {}
    for message in messages:
        demand[message.sku_id] = demand.get(message.sku_id, 0) + message.quantity
    return demand


def _created(message: CreateOrder, batch: _Batch, expires_at: datetime) -> OrderRecord:
    terms = batch.terms[message.sku_id]
    return OrderRecord(
        order_id=message.order_id,
        reservation_id=message.reservation_id,
        request_id=message.request_id,
        activity_id=message.activity_id,
        sku_id=message.sku_id,
        user_id=message.user_id,
        quantity=message.quantity,
        amount_cents=message.quantity * terms.price_cents,
        currency=terms.currency,
        status=OrderStatus.CREATED.value,
        version=1,
        reason="",
        created_at=batch.now,
        expires_at=expires_at,
        paid_at=None,
        canceled_at=None,
        payment_id="",
        traceparent=message.trace.traceparent,
    )


def _oldest_kept_id() -> str:
    """Return the smallest message id whose day the inbox still keeps (text order is time order)."""
    day = timezone.now() - timedelta(days=settings.SECKILL_INBOX_DAYS - 1)
    return message_id_bound(day.date())

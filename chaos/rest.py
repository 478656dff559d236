"""Rest, and what must hold then: every buyer answered, every unit and every cent where it belongs.

Liveness first: with all faults gone, everything accepted reaches an end state in bounded time.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db import Error as DatabaseFailure
from django.db import connection
from ulid import ULID

from chaos import desk, effects
from chaos.buyers import Refusal
from chaos.catalogue import Excuse
from dlq_admin.audit.verify import verify
from inventory import selectors, verbs
from inventory.errors import GateUnavailable
from inventory.gate import gate
from orders import invariants
from orders.held import held_reservations
from orders.payments import providers
from orders.payments.money import compare_book

REST_S: Final = 120.0
_POLL_S: Final = 0.3
_SLACK_MS: Final = 1_000
YOUNG_MS: Final = 0  # nothing is on its way at rest: the newest reservations are compared, too
# An order rests in PAYING after a declined payment, until its buyer tries again or its time is
# over; that step has no event. A payment under way has a line of its own.
_IN_MOTION: Final = """
SELECT (SELECT count(*) FROM orders_reservation
         WHERE activity_id = %(a)s AND release_state = 'DUE'),
       (SELECT count(*) FROM orders_order
         WHERE activity_id = %(a)s AND status IN ('CREATED', 'PAYING') AND expires_at <= now()),
       (SELECT count(*) FROM orders_order WHERE activity_id = %(a)s AND status = 'REFUNDING'),
       (SELECT count(*) FROM messaging_outbox WHERE state = 0 AND lane < 2),
       (SELECT count(*) FROM orders_payment_attempt a JOIN orders_order o USING (order_id)
         WHERE o.activity_id = %(a)s AND a.next_try_at IS NOT NULL),
       (SELECT count(*) FROM orders_refund r JOIN orders_order o USING (order_id)
         WHERE o.activity_id = %(a)s AND r.next_try_at IS NOT NULL),
       (SELECT count(*) FROM inventory_gateoperation
         WHERE activity_id = %(a)s AND status = 'REQUESTED'),
       (SELECT count(*) FROM orders_order o LEFT JOIN orders_query q ON q.order_id = o.order_id
         WHERE o.activity_id = %(a)s AND (q.order_id IS NULL OR
           (q.status <> o.status AND o.status <> 'PAYING'))),
       (SELECT count(*) FROM orders_order o
         WHERE o.activity_id = %(a)s AND o.status <> 'PAYING' AND NOT EXISTS
           (SELECT 1 FROM messaging_event_archive e
             WHERE e.aggregate_id = o.order_id AND e.aggregate_version = o.aggregate_version)),
       (SELECT count(*) FROM messaging_grouppause)
"""
_SAYINGS: Final = (
    *("{} releases due", "{} unpaid orders past their time", "{} orders being refunded"),
    *("{} outbox rows not sent", "{} payments not settled", "{} refunds not settled"),
    *("{} gate operations not done", "{} orders not projected", "{} events not archived"),
    "{} groups paused",
)
_FATES: Final = """
SELECT p.id, coalesce(r.outcome, ''), coalesce(r.reject_reason, ''),
       EXISTS (SELECT 1 FROM messaging_quarantine q
                WHERE q.reservation_id = p.id AND q.status = 'OPEN')
  FROM unnest(%s::text[]) AS p(id)
  LEFT JOIN orders_reservation r ON r.reservation_id = p.id
"""
_REJECTED: Final = """
SELECT r.reservation_id, r.reject_reason, (extract(epoch FROM r.created_at) * 1000)::bigint,
       EXISTS (SELECT 1 FROM dlq_message m
                WHERE m.reservation_id = r.reservation_id AND m.error_class = ANY(%s))
  FROM orders_reservation r WHERE r.activity_id = %s AND r.outcome = 'REJECTED'
"""
_EFFECTS: Final = """
SELECT (SELECT coalesce(sum(value), 0)::bigint FROM orders_effect
         WHERE activity_id = %(a)s AND consumer_group LIKE '%%SETTLEMENT%%'),
       (SELECT coalesce(sum(amount_cents), 0)::bigint FROM orders_order
         WHERE activity_id = %(a)s AND status IN ('PAID', 'FULFILLING', 'FULFILLED', 'REFUNDING'))
"""
_ENDED: Final = """
SELECT reservation_id, (extract(epoch FROM release_due_at) * 1000)::bigint
  FROM orders_reservation WHERE reservation_id = ANY(%s) AND release_due_at IS NOT NULL
"""
_ITEMS: Final = """
SELECT consumer_group, reason, message_id, error FROM messaging_quarantine
 WHERE status = 'OPEN' AND id > %s
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Forgotten:
    """When those were born whom a Redis with less data may have forgotten; `to_ms` 0 = nobody."""

    from_ms: int
    to_ms: int

    def __contains__(self, reservation_id: str) -> bool:
        """Whether a reservation is one of them."""
        return self.from_ms <= _born_ms(reservation_id) <= self.to_ms


def newest_item() -> int:
    """Return the id of the newest quarantine row: what comes later belongs to this seed."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(max(id), 0) FROM messaging_quarantine")
        return int(cursor.fetchone()[0])


def motion(activity_id: int) -> list[str]:
    """Return what is still on its way, one line each; [] at rest. Unpaid orders may wait."""
    try:
        stats = gate().run(verbs.pending_stats(activity_id=activity_id))
        with connection.cursor() as cursor:
            cursor.execute(_IN_MOTION, {"a": activity_id})
            counts = cursor.fetchone()
        owed = effects.look(activity_id).motion()
        held = len(held_reservations(activity_id))
        dead = desk.left()
        sale = selectors.activity_record(activity_id)
    except (GateUnavailable, DatabaseFailure) as error:
        connection.close()
        return [f"{type(error).__name__}: {error}"]
    found = [saying.format(n) for saying, n in zip(_SAYINGS, counts, strict=True) if n]
    found += owed + dead
    if stats.pending:
        found.append(f"{stats.pending} reservations not sent")
    if stats.open > held:
        found.append(f"{stats.open - held} reservations without an outcome")
    if sale is not None and (sale.rebuild_unfinished or sale.loss_noted_at):
        found.append("the gate waits for its rebuild")
    return found


def wait_for_rest(activity_id: int, *, timeout_s: float = REST_S) -> tuple[float, list[str]]:
    """Wait for rest; return how long it took, and what is left when it did not come."""
    began = time.monotonic()
    while left := motion(activity_id):
        if time.monotonic() - began > timeout_s:
            break
        time.sleep(_POLL_S)
    return time.monotonic() - began, left


def breaches(
    *,
    activity_id: int,
    promised: Mapping[str, str],
    renewed: Sequence[tuple[str, str]],
    refused: Sequence[Refusal] = (),
    excuses: frozenset[Excuse],
    items_after: int,
    returned_ms: int,
    copy_taken_ms: int,
    clocks_off_ms: int = 0,
    mails_may_be_lost: bool = False,
) -> tuple[list[str], dict[str, int]]:
    """Compare everything at rest.

    Args:
        activity_id: the sale.
        promised: reservations that buyers were told to have, with the status of the answer.
        renewed: reservations of one key: the first, and another that the same key got later.
        refused: clear refusals of a key that names a reservation.
        excuses: what this seed's faults may cost.
        items_after: quarantine rows above this id are this seed's.
        returned_ms: when Redis came back with less than it had, epoch ms; 0 = never.
        copy_taken_ms: how old that copy was.
        clocks_off_ms: how wrong the clocks were that the ids of reservations tell.
        mails_may_be_lost: whether a fault struck that makes a mail's sender lose its fate.

    Returns:
        Breaches, one line each, and what was excused.
    """
    report = invariants.check(activity_id, young_ms=YOUNG_MS)
    found = [f"{b.kind}: {b.rule}: {', '.join(b.samples[:3])}" for b in report.breaches]
    found += [f"in motion: {what}" for sale in report.sales for what in sale.motion]
    numbers = report.as_json()
    found += [f"{name} is {numbers[name]}" for name in ("oversold", "duplicates") if numbers[name]]
    forgotten = Forgotten(
        from_ms=copy_taken_ms - _SLACK_MS - clocks_off_ms,
        to_ms=returned_ms + _SLACK_MS + clocks_off_ms if returned_ms else 0,
    )
    lost, excused = _fates(promised, excuses, forgotten)
    found += lost
    found += _rejects(activity_id, excuses, returned_ms, excused)
    found += _renewals(renewed, excuses, returned_ms, forgotten, excused)
    found += _refusals(refused, excuses)
    found += effects.look(activity_id).breaches(may_be_unknown=mails_may_be_lost)
    with connection.cursor() as cursor:
        cursor.execute(_EFFECTS, {"a": activity_id})
        settled, kept = cursor.fetchone()
        cursor.execute(_ITEMS, (items_after,))
        items = cursor.fetchall()
    if settled != kept:
        found.append(f"effects settled {settled} cents, orders keep {kept}")
    found += [
        f"open item {group} {reason} {message_id}: {error[:120]}"
        for group, reason, message_id, error in items
        if not (group == "GATE" and Excuse.LOSS in excuses)
    ]
    found += [
        f"the provider's book: {d.kind} {d.order_id} {d.key}: ours {d.ours}, theirs {d.theirs}"
        for d in compare_book(providers.current()).differences
    ]
    found += [f"audit chain {one.chain}, event {one.seq}: {one.what}" for one in verify().findings]
    return found, excused


def _fates(
    promised: Mapping[str, str], excuses: frozenset[Excuse], forgotten: Forgotten
) -> tuple[list[str], dict[str, int]]:
    """What became of every promise: an order, a reason, an open ticket; else it is lost."""
    with connection.cursor() as cursor:
        cursor.execute(_FATES, (sorted(promised),))
        fates = cursor.fetchall()
    lost: list[str] = []
    excused: dict[str, int] = {}
    for reservation_id, outcome, reason, held in fates:
        if outcome == "ORDERED" or (outcome == "REJECTED" and reason) or held:
            continue
        # Only the PENDING ones, younger than the copy, lived by Redis alone. What is younger than
        # its return is in the Redis that came back, and its rebuild waits for it.
        by_redis_alone = Excuse.LOSS in excuses and promised[reservation_id] != "QUEUED"
        if by_redis_alone and reservation_id in forgotten:
            excused["pending_lost"] = excused.get("pending_lost", 0) + 1
            continue
        lost.append(f"lost: {reservation_id} was told {promised[reservation_id]}")
    return lost, excused


def _rejects(
    activity_id: int, excuses: frozenset[Excuse], returned_ms: int, excused: dict[str, int]
) -> list[str]:
    """Nobody is rejected without an excuse of this seed."""
    with connection.cursor() as cursor:
        cursor.execute(_REJECTED, (list(desk.PLANNED), activity_id))
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    found = []
    for reservation_id, reason, at_ms, dead in rows:
        expiry = reason == "RESERVATION_EXPIRED" and excuses & {Excuse.EXPIRY, Excuse.LOSS}
        loss = (
            reason in {"NO_FINAL_STOCK", "DUPLICATE_ORDER"}
            and Excuse.LOSS in excuses
            and 0 < returned_ms <= at_ms
        )
        compensated = reason == "COMPENSATED" and dead
        if expiry or loss or compensated:
            excused[reason] = excused.get(reason, 0) + 1
        else:
            found.append(f"rejected: {reservation_id} {reason}")
    return found


def _renewals(
    renewed: Sequence[tuple[str, str]],
    excuses: frozenset[Excuse],
    returned_ms: int,
    forgotten: Forgotten,
    excused: dict[str, int],
) -> list[str]:
    """A key names one reservation for ever, but for what a Redis that came back has forgotten."""
    found = []
    for first, second in renewed:
        lost = Excuse.LOSS in excuses and first in forgotten
        if lost and 0 < returned_ms <= _born_ms(second) + _SLACK_MS:
            excused["key_forgotten"] = excused.get("key_forgotten", 0) + 1
        else:
            found.append(f"the key of {first} gave {second}, too")
    return found


def _refusals(refused: Sequence[Refusal], excuses: frozenset[Excuse]) -> list[str]:
    """Identity answers whatever the gate's status: a key is refused only when its time is over.

    A web process that knows the SKU to be sold out, and not the key, may say so of a reservation
    that is over; a Redis that lost data knows no keys.
    """
    if Excuse.LOSS in excuses:
        return []
    with connection.cursor() as cursor:
        cursor.execute(_ENDED, ([one.reservation_id for one in refused],))
        ended_ms: dict[str, int] = dict(cursor.fetchall())
    return [
        f"the key of {one.reservation_id} was answered {one.status} {one.code}"
        for one in refused
        if one.code != "SOLD_OUT" or one.at_ms < ended_ms.get(one.reservation_id, one.at_ms + 1)
    ]


def _born_ms(reservation_id: str) -> int:
    return ULID.from_str(reservation_id.removeprefix("rsv_")).milliseconds

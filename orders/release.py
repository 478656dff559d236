"""Units go back to the gate: Redis first, then DONE, then the ack.

`buyers[user]` in Redis names the reservation at most once, so a repeated release gives nothing
twice; DONE only says that nobody needs to try again. User, quantity and restock come from
PostgreSQL, never from the message. Rules: `buyers-decide`, `rejected-release` of docs/protocol.md.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from django.db import transaction

import faultpoint
from inventory import verbs
from inventory.contracts import ReleaseCode, ReleaseItem
from inventory.errors import GateUnavailable
from inventory.gate import gate
from inventory.turns import each_sale
from messaging.errors import TransientError
from orders import metrics
from orders.database import begin, execute
from orders.reject_order import KnownReservation, known_reservations
from orders.states import ReleaseState

log = structlog.get_logger(__name__)

_MARK_DONE: Final = """
WITH locked AS (
  SELECT reservation_id FROM orders_reservation
   WHERE reservation_id = ANY(%b::text[]) AND release_state = 'DUE'
   ORDER BY reservation_id
     FOR NO KEY UPDATE
)
UPDATE orders_reservation r SET release_state = 'DONE', released_at = clock_timestamp()
  FROM locked
 WHERE r.reservation_id = locked.reservation_id AND r.release_state = 'DUE'
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleaseResult:
    """What became of each reservation that was asked for."""

    released: frozenset[str]  # the gate answered OK now
    already: frozenset[str]  # DONE before
    deferred: frozenset[str]  # the gate is lost, rebuilding, or on a shard that is away: DUE stays
    unknown: frozenset[str]  # no row, or no release was ever due


def release_reservations(
    reservation_ids: Iterable[str], *, also_done: bool = False
) -> ReleaseResult:
    """Drive releases: at the gate first, then DONE in PostgreSQL.

    Args:
        reservation_ids: any number; those that are DUE are driven.
        also_done: drive DONE ones, too: the sweep found them open at the gate.

    Raises:
        TransientError: Redis cannot be reached; nothing was marked DONE that did not happen.

    Cost: two statements and one Lua call per activity.
    """
    ids = set(reservation_ids)
    known = known_reservations(ids)
    due = [
        one
        for one in known
        if one.release_state is ReleaseState.DUE
        or (also_done and one.release_state is ReleaseState.DONE)
    ]
    released, deferred = _at_gate(due)
    if released:
        faultpoint.hit("release.after_gate")
        _mark_done(sorted(released))
    metrics.RELEASE.labels(result="done").inc(len(released))
    metrics.RELEASE.labels(result="deferred").inc(len(deferred))
    done = {one.reservation_id for one in known if one.release_state is ReleaseState.DONE}
    return ReleaseResult(
        released=frozenset(released),
        already=frozenset(done - released - deferred),
        deferred=frozenset(deferred),
        unknown=frozenset(ids - done - released - deferred),
    )


def _at_gate(due: Sequence[KnownReservation]) -> tuple[set[str], set[str]]:
    """Run `release.lua` for each activity; return the ids answered OK and those answered RETRY."""
    by_activity: dict[int, list[KnownReservation]] = defaultdict(list)
    for one in due:
        by_activity[one.activity_id].append(one)
    released: set[str] = set()
    deferred: set[str] = set()

    def release(activity_id: int, group: list[KnownReservation]) -> None:
        items = [
            ReleaseItem(
                sku_id=one.sku_id,
                reservation_id=one.reservation_id,
                user_id=one.user_id,
                quantity=one.quantity,
                restock=one.restock,
                reason=one.reason,
            )
            for one in group
        ]
        replies = gate().run(verbs.release(activity_id=activity_id, items=items))
        for one, reply in zip(group, replies, strict=True):
            if reply.code is ReleaseCode.OK:
                released.add(one.reservation_id)
            else:
                deferred.add(one.reservation_id)

    try:
        left = each_sale(by_activity, release)
    except GateUnavailable as error:
        raise TransientError("the gate cannot be reached") from error
    deferred.update(one.reservation_id for one in due if one.activity_id in left)
    if deferred:
        log.info("release_deferred", count=len(deferred))
    return released, deferred


def _mark_done(reservation_ids: list[str]) -> None:
    with transaction.atomic(durable=True):
        begin()
        execute(_MARK_DONE, (reservation_ids,))

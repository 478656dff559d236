"""The transaction of a rebuild: one snapshot of everything that the new gate is made of.

    stock rows locked in key order -> epoch + 1, booked top-ups DONE -> held reservations beyond the
    stock rejected -> DUE releases DONE -> stock = available - held; buyers = live orders and held

It is REPEATABLE READ and its first statement takes the locks: what moved units before is in the
snapshot, what moves units later waits, and whatever came between answers 40001: again.
Rules: `rebuild-snapshot`, `rebuild-debt`, `rebuild-held-buyers`, `ops-epoch` of docs/protocol.md.
"""

import random
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import structlog
from django.db import DatabaseError, connection, transaction

import faultpoint
from inventory import rebuild
from inventory.contracts import GateRebuild
from inventory.rebuild import Run
from inventory.states import GateStatus
from messaging.quarantine import HeldReservation
from messaging.sqlstate import ErrorClass, classify
from orders.database import execute, fetch
from orders.held import held_reservations, is_complete, reject_held
from orders.states import RejectReason

log = structlog.get_logger(__name__)

TRIES: Final = 10
ISOLATION = "REPEATABLE READ"
RESOLUTION: Final = "REBUILD"

_LIVE: Final = """
SELECT sku_id, user_id, reservation_id FROM orders_order
 WHERE activity_id = %s AND status NOT IN ('CANCELED', 'REFUNDED')
"""
_SETTLE_DUE: Final = """
UPDATE orders_reservation SET release_state = 'DONE', released_at = clock_timestamp()
 WHERE activity_id = %s AND release_state = 'DUE'
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What the last script writes."""

    gates: tuple[GateRebuild, ...]
    mark: int | None
    status: GateStatus
    version: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Broken:
    """An accepted buyer whose promise ends here, and why."""

    reservation_id: str
    user_id: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What the transaction found and ended; kept with the run."""

    available: dict[int, int]
    held: dict[int, int]  # SKU → units of held reservations that are honoured
    live_orders: int
    releases_settled: int
    topped_up: tuple[str, ...]
    broken: tuple[Broken, ...]
    unreadable: tuple[str, ...]  # held rows that do not tell whose they are


def read_and_settle(run: Run) -> tuple[Plan, Found]:
    """Run the transaction, again on 40001 and its like.

    Raises:
        RebuildOvertaken: a newer run began.
        DatabaseError: the database refuses; nothing was written.

    Cost: about twenty statements; reads all live orders of the sale, locks its stock rows.
    """
    for attempt in range(1, TRIES + 1):
        try:
            with transaction.atomic(durable=True):
                with connection.cursor() as cursor:
                    cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {ISOLATION}")
                    cursor.execute("SET LOCAL lock_timeout = '2s'")
                result = _transaction(run)
                faultpoint.hit("rebuild.before_commit")
            return result
        except DatabaseError as error:
            if classify(error) is not ErrorClass.CONTENTION or attempt == TRIES:
                raise
            log.info("rebuild_again", activity_id=run.activity_id, run=run.number, tries=attempt)
            time.sleep(random.uniform(0.01, 0.05) * attempt)  # noqa: S311
    raise AssertionError("unreachable")


def _transaction(run: Run) -> tuple[Plan, Found]:
    ground = rebuild.take_ground(run)
    ((now,),) = fetch("SELECT date_trunc('milliseconds', clock_timestamp())")
    live = {(sku, user): rsv for sku, user, rsv in fetch(_LIVE, (run.activity_id,))}
    held = held_reservations(run.activity_id)
    unreadable = tuple(row.reservation_id for row in held if not is_complete(row))
    kept, rejects = _divide(
        (row for row in held if is_complete(row)), available=ground.available, taken=set(live)
    )
    reject_held(rejects, now=now, resolution=RESOLUTION)
    settled = execute(_SETTLE_DUE, (run.activity_id,))
    buyers: dict[int, dict[str, str]] = {sku_id: {} for sku_id in run.sku_ids}
    units = dict.fromkeys(run.sku_ids, 0)
    for (sku_id, user_id), reservation_id in live.items():
        buyers[sku_id][user_id] = reservation_id
    for row in kept:
        buyers[row.sku_id or 0][row.user_id or ""] = row.reservation_id
        units[row.sku_id or 0] += row.quantity or 0
    found = Found(
        available=dict(ground.available),
        held=units,
        live_orders=len(live),
        releases_settled=settled,
        topped_up=ground.topped_up,
        broken=tuple(
            Broken(
                reservation_id=row.reservation_id, user_id=row.user_id or "", reason=reason.value
            )
            for row, reason in rejects
        ),
        unreadable=unreadable,
    )
    rebuild.note_found(run, as_json(found))
    record = ground.record
    plan = Plan(
        gates=tuple(
            GateRebuild(
                sku_id=sku.sku_id,
                units=ground.available[sku.sku_id] - units[sku.sku_id],
                epoch=sku.epoch,
                config=record.gate_config(sku),
                buyers=buyers[sku.sku_id],
            )
            for sku in record.skus
        ),
        mark=ground.mark,
        status=GateStatus(record.status.value),
        version=record.version,
    )
    return plan, found


def _divide(
    held: Iterable[HeldReservation],
    *,
    available: Any,
    taken: set[tuple[int, str]],
) -> tuple[list[HeldReservation], list[tuple[HeldReservation, RejectReason]]]:
    """Split held reservations, oldest first: what can be honoured, and the debt that cannot."""
    kept: list[HeldReservation] = []
    rejects: list[tuple[HeldReservation, RejectReason]] = []
    left = dict(available)
    for row in held:
        sku_id, buyer = row.sku_id or 0, (row.sku_id or 0, row.user_id or "")
        if buyer in taken:
            rejects.append((row, RejectReason.DUPLICATE_ORDER))
        elif (row.quantity or 0) > left.get(sku_id, 0):
            rejects.append((row, RejectReason.NO_FINAL_STOCK))
        else:
            left[sku_id] -= row.quantity or 0
            taken.add(buyer)
            kept.append(row)
    return kept, rejects


def as_json(found: Found) -> dict[str, Any]:
    """Return what is kept with the run: ids and numbers, for people and for the audit."""
    return {
        "available": {str(sku): units for sku, units in found.available.items()},
        "held": {str(sku): units for sku, units in found.held.items()},
        "live_orders": found.live_orders,
        "releases_settled": found.releases_settled,
        "topped_up": list(found.topped_up),
        "broken": [
            {"reservation_id": one.reservation_id, "user_id": one.user_id, "reason": one.reason}
            for one in found.broken
        ],
        "unreadable": list(found.unreadable),
    }

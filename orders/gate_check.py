"""Redis against PostgreSQL: who holds units at the gate, and whether the totals agree at rest.

The two are read one after the other, so a difference may be a change on its way. Reservations
younger than 10 s are left out, unless the caller knows that all is at rest, and whoever looks wrong
is looked at again before it is a breach. Totals are compared at rest only, and twice as well.
"""

from dataclasses import dataclass, field
from typing import Final

from ulid import ULID

from inventory import selectors, verbs
from inventory.contracts import PendingStats
from inventory.errors import GateUnavailable
from inventory.gate import gate
from inventory.selectors import ActivityRecord
from messaging import quarantine
from messaging.topology import CG_ORDER_CREATE
from orders.database import fetch

YOUNG_MS: Final = 10_000
_PAGE: Final = 5_000
_LOOKS: Final = 5

_LIVE: Final = """
SELECT sku_id, user_id, reservation_id FROM orders_order
 WHERE activity_id = %s AND status NOT IN ('CANCELED', 'REFUNDED')
"""
_DUE: Final = """
SELECT reservation_id FROM orders_reservation WHERE activity_id = %s AND release_state = 'DUE'
"""
_WITH_OUTCOME: Final = """
SELECT reservation_id FROM orders_reservation WHERE reservation_id = ANY(%b::text[])
"""


@dataclass(slots=True)
class GateFindings:
    """What the look at one sale's gate found. `motion` says why totals were not compared."""

    breaches: list[tuple[str, str]] = field(default_factory=list)  # kind, id or explanation
    motion: list[str] = field(default_factory=list)
    waiting: int = 0  # reservations without an outcome


def check_gate(sale: ActivityRecord, *, young_ms: int | None = None) -> GateFindings:
    """Compare one sale's gate with PostgreSQL.

    Args:
        sale: the sale, read before.
        young_ms: reservations up to this age are not compared one by one; 0: all are, for a caller
            who waited for rest; None: YOUNG_MS.

    Cost: reads all holders of the sale and all its live orders, twice when something looks wrong;
    its ledger once for each look at the totals.
    """
    findings = GateFindings()
    age_ms = YOUNG_MS if young_ms is None else young_ms
    try:
        suspects = _suspects(sale, findings, age_ms)
        if suspects:
            again = GateFindings()
            suspects &= _suspects(sale, again, age_ms)
        findings.breaches += sorted(suspects)
        _totals(sale, findings)
    except GateUnavailable as error:
        findings.motion.append(f"Redis does not answer ({error})")
    return findings


def _suspects(sale: ActivityRecord, findings: GateFindings, young_ms: int) -> set[tuple[str, str]]:
    """Return (kind, reservation) of what does not agree now and is not plainly on its way."""
    now_ms = _stats(sale).redis_now_ms
    open_ids = _open_ids(sale.activity_id)
    live: dict[tuple[int, str], str] = {
        (sku_id, user_id): rsv for sku_id, user_id, rsv in fetch(_LIVE, (sale.activity_id,))
    }
    due = {row[0] for row in fetch(_DUE, (sale.activity_id,))}
    held = set(_held(sale.activity_id))
    ended = {row[0] for row in fetch(_WITH_OUTCOME, (sorted(open_ids | held),))}
    findings.waiting = len((open_ids | held) - ended)
    found: set[tuple[str, str]] = set()
    for sku in sale.skus:
        if gate().run(verbs.gate_state(activity_id=sale.activity_id, sku_id=sku.sku_id)) is None:
            findings.motion.append(f"the gate of SKU {sku.sku_id} is not there")
            continue
        holders = gate().run(verbs.holders(activity_id=sale.activity_id, sku_id=sku.sku_id))
        for (sku_id, user_id), reservation_id in live.items():
            wrong = sku_id == sku.sku_id and holders.get(user_id) != reservation_id
            if wrong and _is_old(reservation_id, now_ms, young_ms):
                found.add(("order_without_holder", reservation_id))
        for user_id, reservation_id in holders.items():
            excused = reservation_id in open_ids or reservation_id in due or reservation_id in held
            ordered = live.get((sku.sku_id, user_id)) == reservation_id
            if not ordered and not excused and _is_old(reservation_id, now_ms, young_ms):
                found.add(("holder_without_order", reservation_id))
    return found


def _totals(sale: ActivityRecord, findings: GateFindings) -> None:
    """At rest: gate stock = available - held units.

    A straggler's order may be made between the reads of one look. The next look sees another gate
    stock, available or held, or no difference: a breach is what two looks in a row tell alike.
    """
    before: set[str] = set()
    for _ in range(_LOOKS):
        uneven, motion = _look(sale)
        findings.motion += motion
        if findings.motion or not uneven:
            return
        if lasting := uneven & before:
            findings.breaches += [("gate_stock", line) for line in sorted(lasting)]
            return
        before = uneven
    findings.motion.append(f"gate and orders differ otherwise in each of {_LOOKS} looks")


def _look(sale: ActivityRecord) -> tuple[set[str], list[str]]:
    """Return a line for each SKU that does not add up, and what is on its way.

    Read in this order: the gate's stock, PostgreSQL's, then what is on its way. A unit that the
    gate gave away before is then in an order, on its way or held, but for the race above.
    """
    at_gate = {
        sku.sku_id: gate().run(verbs.gate_state(activity_id=sale.activity_id, sku_id=sku.sku_id))
        for sku in sale.skus
    }
    stock = selectors.conservation(sale.activity_id)
    held = _held(sale.activity_id)
    stats = _stats(sale)
    motion = []
    if stats.pending or _open_ids(sale.activity_id) - held.keys():
        motion.append(f"{stats.pending} pending, {stats.open} without an outcome")
    if fetch(_DUE + " LIMIT 1", (sale.activity_id,)):
        motion.append("releases are due")
    if any(sku.unbooked_operations for sku in stock):
        motion.append("top-ups or cuts are on their way")
    if sale.rebuild_unfinished or sale.loss_noted_at:
        motion.append("the gate is being rebuilt")
    uneven = set()
    for sku in stock:
        state = at_gate.get(sku.sku_id)
        held_units = sum(units for sku_id, units in held.values() if sku_id == sku.sku_id)
        if state is not None and state.stock != sku.available - held_units:
            uneven.add(
                f"SKU {sku.sku_id}: gate {state.stock}, available {sku.available},"
                f" held {held_units}"
            )
    return uneven, motion


def _stats(sale: ActivityRecord) -> PendingStats:
    return gate().run(verbs.pending_stats(activity_id=sale.activity_id))


def _held(activity_id: int) -> dict[str, tuple[int | None, int]]:
    """Return held reservations (SKU, units): an open row and no outcome."""
    held = {
        row.reservation_id: (row.sku_id, row.quantity or 0)
        for row in quarantine.held_reservations(group=CG_ORDER_CREATE, activity_id=activity_id)
    }
    if held:
        for (reservation_id,) in fetch(_WITH_OUTCOME, (sorted(held),)):
            del held[reservation_id]
    return held


def _open_ids(activity_id: int) -> set[str]:
    ids: set[str] = set()
    while True:
        page = gate().run(
            verbs.open_page(
                activity_id=activity_id,
                min_score_ms=0,
                max_score_ms=2**53 - 1,
                offset=len(ids),
                limit=_PAGE,
            )
        )
        ids |= {reservation_id for reservation_id, _ in page}
        if len(page) < _PAGE:
            return ids


def _is_old(reservation_id: str, now_ms: int, young_ms: int) -> bool:
    if young_ms <= 0:  # whatever the clock says of its maker: an id may lie ahead of Redis
        return True
    return now_ms - ULID.from_str(reservation_id.removeprefix("rsv_")).milliseconds > young_ms

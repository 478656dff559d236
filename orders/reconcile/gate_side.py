"""Who holds units at the gate against who should: live orders, held reservations, nobody else.

What is plainly on its way is left alone (`orders/gate_check.py` looks twice, at what is older than
10 s only); a gate that is lost or being rebuilt is the rebuild's business.
"""

from collections.abc import Sequence
from typing import Final

from inventory import selectors, verbs
from inventory.contracts import AdoptCode, ReleaseCode, ReleaseItem
from inventory.gate import gate
from inventory.gate_status import is_lost
from inventory.selectors import ActivityRecord
from inventory.states import GateReservationStatus, GateStatus
from orders.database import fetch
from orders.gate_check import check_gate
from orders.reconcile.difference import Difference, Outcome, Scope
from orders.reject_order import by_id, known_reservations
from orders.states import ReleaseState

ORDER_WITHOUT_HOLDER: Final = "order_without_holder"
HOLDER_OF_ENDED: Final = "holder_of_ended"
CONFIRMED_WITHOUT_ORDER: Final = "confirmed_without_order"
HOLDER_WITHOUT_ORDER: Final = "holder_without_order"
GATE_STOCK: Final = "gate_stock"

_LIVE_ORDER: Final = """
SELECT o.order_id, o.activity_id, o.sku_id, o.user_id, o.quantity
  FROM orders_order o
  JOIN orders_reservation r ON r.reservation_id = o.reservation_id AND r.release_state = 'NONE'
 WHERE o.reservation_id = %s AND o.status NOT IN ('CANCELED', 'REFUNDED')
   FOR NO KEY UPDATE OF o
"""
_ENDED: Final = """
SELECT activity_id, sku_id, user_id, quantity, restock, release_state FROM orders_reservation
 WHERE reservation_id = %s AND release_state = 'DONE'
   FOR NO KEY UPDATE
"""


def find(scope: Scope) -> list[Difference]:
    """Compare the gate of every served sale. Cost: see `check_gate`, and one read a suspect."""
    found: list[Difference] = []
    for sale in scope.serving:
        if sale.rebuild_unfinished or sale.loss_noted_at or not _is_there(sale):
            continue
        breaches = check_gate(sale).breaches
        found += _holders(sale, [what for kind, what in breaches if kind == HOLDER_WITHOUT_ORDER])
        found += [
            _difference(sale, kind, what, "a live order, but its buyer does not hold it")
            for kind, what in breaches
            if kind == ORDER_WITHOUT_HOLDER
        ]
        if all(kind == GATE_STOCK for kind, _ in breaches):  # else it is what they amount to
            found += [
                _difference(sale, kind, what.partition(":")[0], what) for kind, what in breaches
            ]
    return found


def adopt(difference: Difference) -> Outcome:
    """Take the units of a live order from the gate and let its buyer hold them.

    The order's row is locked: it cannot end, nor be released, before its buyer stands at the gate.
    """
    rows = fetch(_LIVE_ORDER, (difference.subject,))
    if not rows:
        return Outcome.GONE
    order_id, activity_id, sku_id, user_id, quantity = rows[0]
    record = selectors.activity_record(activity_id)
    if record is None or record.rebuild_unfinished or record.loss_noted_at:
        return Outcome.GONE  # the rebuild writes the buyers anew
    epochs = {sku.sku_id: sku.epoch for sku in record.skus}
    code = gate().run(
        verbs.adopt(
            activity_id=activity_id,
            sku_id=sku_id,
            order_id=order_id,
            user_id=user_id,
            reservation_id=difference.subject,
            quantity=quantity,
            epoch=epochs[sku_id],
        )
    )
    if code is AdoptCode.OK:
        return Outcome.REPAIRED
    return Outcome.GONE if code in {AdoptCode.HELD, AdoptCode.RETRY} else Outcome.UNPROVEN


def release_again(difference: Difference) -> Outcome:
    """Release what PostgreSQL has ended and released: the gate still names it as a holder."""
    rows = fetch(_ENDED, (difference.subject,))
    if not rows:
        return Outcome.GONE
    activity_id, sku_id, user_id, quantity, restock, _ = rows[0]
    item = ReleaseItem(
        sku_id=sku_id,
        reservation_id=difference.subject,
        user_id=user_id,
        quantity=quantity,
        restock=restock,
        reason="RECONCILED",
    )
    (reply,) = gate().run(verbs.release(activity_id=activity_id, items=[item]))
    return Outcome.REPAIRED if reply.code is ReleaseCode.OK else Outcome.GONE


def _holders(sale: ActivityRecord, reservation_ids: Sequence[str]) -> list[Difference]:
    """Tell apart who holds units without an order: what PostgreSQL and the hash know of him."""
    known = by_id(known_reservations(reservation_ids))
    hashes = gate().run(
        verbs.reservations(activity_id=sale.activity_id, reservation_ids=reservation_ids)
    )
    found = []
    for reservation_id, at_gate in zip(reservation_ids, hashes, strict=True):
        status = at_gate.status if at_gate else "gone"
        outcome = known.get(reservation_id)
        if outcome is not None and outcome.release_state is ReleaseState.NONE:
            continue  # ended without a release: the database's side finds it
        if outcome is not None:
            kind, detail = HOLDER_OF_ENDED, "ended and released, but it still holds units"
        elif status == GateReservationStatus.CONFIRMED:
            kind, detail = CONFIRMED_WITHOUT_ORDER, "confirmed, but there is no order"
        else:
            kind, detail = HOLDER_WITHOUT_ORDER, f"no outcome, its hash is {status}"
        found.append(_difference(sale, kind, reservation_id, detail))
    return found


def _is_there(sale: ActivityRecord) -> bool:
    states = [
        gate().run(verbs.gate_state(activity_id=sale.activity_id, sku_id=sku.sku_id))
        for sku in sale.skus
    ]
    return all(
        state is not None
        and not is_lost(sale, state)
        and state.status != GateStatus.REBUILDING
        and not state.rebuild_run
        for state in states
    )


def _difference(sale: ActivityRecord, kind: str, subject: str, detail: str) -> Difference:
    return Difference(kind=kind, activity_id=sale.activity_id, subject=subject, detail=detail)

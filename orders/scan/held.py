"""Ends held reservations that no ticket ended within 24 h of their sale's end.

Over the rows in PostgreSQL, not over `open` at the gate: Redis may have lost them long ago.
"""

from typing import Final

import structlog
from django.db import transaction

from messaging.topology import CG_ORDER_CREATE
from orders import metrics
from orders.database import begin, fetch
from orders.held import is_complete, lock_held, reject_held
from orders.reject_order import valid_extensions
from orders.states import RejectReason

log = structlog.get_logger(__name__)

GIVE_UP_S: Final = 86_400
BATCH: Final = 50

_OVERDUE: Final = """
SELECT DISTINCT q.reservation_id
  FROM messaging_quarantine q
  JOIN inventory_activity a ON a.id = q.activity_id
  LEFT JOIN orders_reservation r ON r.reservation_id = q.reservation_id
 WHERE q.consumer_group = %s AND q.status = 'OPEN' AND q.reservation_id > %s
   AND r.reservation_id IS NULL
   AND a.ends_at <= clock_timestamp() - %s * interval '1 second'
 ORDER BY q.reservation_id LIMIT %s
"""


class HeldJob:
    """Rejects what waited too long, page by page; each is an alert."""

    name: Final = "held"
    tick_s: Final = 60.0

    def __init__(self) -> None:
        self._after = ""

    def run_once(self) -> int:
        """Reject one page; returns how many. Cost: one statement; seven for each that is due."""
        rows = fetch(_OVERDUE, (CG_ORDER_CREATE, self._after, GIVE_UP_S, BATCH))
        # What cannot be rejected must not keep the others from their turn.
        self._after = rows[-1][0] if len(rows) == BATCH else ""
        return sum(_give_up(row[0]) for row in rows)

    def close(self) -> None:
        """Nothing to close."""


def _give_up(reservation_id: str) -> bool:
    with transaction.atomic(durable=True):
        now = begin()
        held = lock_held(reservation_id)
        if held is None or valid_extensions([reservation_id], now=now):
            return False
        rejected = (
            reject_held([(held, RejectReason.RESERVATION_EXPIRED)], now=now, resolution="GAVE_UP")
            if is_complete(held)
            else []
        )
    # The release is in the outbox; the scanner drives it, too.
    metrics.HELD_GAVE_UP.inc(len(rejected))
    log.error(
        "held_reservation_unresolved",
        alert="HELD_RESERVATION_GAVE_UP",
        reservation_id=reservation_id,
        rejected=bool(rejected),
        action="its sale ended a day ago; tell the buyer"
        if rejected
        else "its row does not tell whose it is: look at the gate and end it by hand",
    )
    return bool(rejected)

"""Deletes the gate keys of sales that were settled 30 days ago.

A refund may end an order long after that: its release has no gate to go to and is DONE at once.
"""

from typing import Final

import structlog
from django.db.models.functions import Now

from inventory import selectors, verbs
from inventory.gate import gate
from orders.database import execute, fetch
from orders.settlement.models import Settlement

log = structlog.get_logger(__name__)

KEEP_DAYS: Final = 30
BATCH: Final = 20

_OLD: Final = """
SELECT activity_id FROM orders_settlement
 WHERE gate_deleted_at IS NULL AND settled_at < clock_timestamp() - %s * interval '1 day'
 ORDER BY settled_at LIMIT %s
"""
_NO_GATE_LEFT: Final = """
UPDATE orders_reservation r SET release_state = 'DONE', released_at = clock_timestamp()
  FROM orders_settlement s
 WHERE s.activity_id = r.activity_id AND s.gate_deleted_at IS NOT NULL AND r.release_state = 'DUE'
"""


def delete_old_gates() -> int:
    """Delete the keys of a batch of old sales; returns how many sales it were.

    Raises:
        GateUnavailable: Redis does not answer; the next run goes on.

    Cost: two statements and one command a sale; reservation hashes expire by themselves.
    """
    deleted = 0
    for (activity_id,) in fetch(_OLD, (KEEP_DAYS, BATCH)):
        record = selectors.activity_record(activity_id)
        sku_ids = [sku.sku_id for sku in record.skus] if record else []
        keys = gate().run(verbs.delete_gate(activity_id=activity_id, sku_ids=sku_ids))
        Settlement.objects.filter(pk=activity_id).update(gate_deleted_at=Now())
        log.info("gate_deleted", activity_id=activity_id, keys=keys)
        deleted += 1
    settled = execute(_NO_GATE_LEFT)
    if settled:
        log.info("release_without_gate", count=settled)
    return deleted

"""Orders against payments and refunds; what is unknown for too long. Never repaired by itself."""

from typing import Final

from django.db import transaction

from orders.database import allow_long_reads, fetch
from orders.payments.money import money_breaches
from orders.reconcile.difference import Difference, Scope

MONEY: Final = "money"
PAYMENT_UNKNOWN: Final = "payment_unknown"
REFUND_UNKNOWN: Final = "refund_unknown"
# Longer than the provider's window in which NOT_FOUND says nothing.
UNKNOWN_S: Final = 3_600

_UNKNOWN: Final = """
SELECT 'payment_unknown', o.activity_id, a.attempt_id, a.status
  FROM orders_payment_attempt a JOIN orders_order o ON o.order_id = a.order_id
 WHERE a.next_try_at IS NOT NULL AND a.created_at < clock_timestamp() - %s * interval '1 second'
   AND (%s::bigint IS NULL OR o.activity_id = %s::bigint)
UNION ALL
SELECT 'refund_unknown', o.activity_id, r.refund_id, r.status
  FROM orders_refund r JOIN orders_order o ON o.order_id = r.order_id
 WHERE r.next_try_at IS NOT NULL AND r.created_at < clock_timestamp() - %s * interval '1 second'
   AND (%s::bigint IS NULL OR o.activity_id = %s::bigint)
 ORDER BY 3
"""


def find(scope: Scope) -> list[Difference]:
    """Look at the money of the sale, or of all.

    Cost: three statements in one transaction; of all sales they read every payment ever made, so
    they get the 10 minutes of `check_invariants` and not the session's limit.
    """
    with transaction.atomic(durable=True):
        if scope.activity_id is None:
            allow_long_reads()
        return _find(scope)


def _find(scope: Scope) -> list[Difference]:
    only = (scope.activity_id, scope.activity_id)
    found = [
        # Each line begins with the order it speaks of.
        Difference(
            kind=MONEY, activity_id=scope.activity_id, subject=line.partition(":")[0], detail=line
        )
        for line in money_breaches(scope.activity_id)
    ]
    found += [
        Difference(
            kind=kind,
            activity_id=activity_id,
            subject=subject,
            detail=f"{status} for more than {UNKNOWN_S} s",
        )
        for kind, activity_id, subject, status in fetch(
            _UNKNOWN, (UNKNOWN_S, *only, UNKNOWN_S, *only)
        )
    ]
    return found

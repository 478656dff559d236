"""CLOSED → SETTLED: only when nothing of the sale is on its way any more.

A settled sale is served by no scanner job and its gate never opens again. Its report is frozen in
the transaction that settles it.
"""

from typing import TYPE_CHECKING, Final

import structlog
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, connection, transaction

from inventory import activities, selectors, verbs
from inventory.errors import OperationRefused
from inventory.gate import gate
from inventory.states import ActivityStatus
from messaging.sqlstate import ErrorClass, classify
from orders.errors import SettlementRefused
from orders.held import held_reservations
from orders.settlement.models import Settlement
from orders.settlement.report import SettlementReport, report_in_snapshot, settlement_report

if TYPE_CHECKING:
    from django.contrib.auth.models import User

log = structlog.get_logger(__name__)

PERMISSION: Final = "orders.settle_sale"

# Messages of a sale that are not sent yet. Its parameter is named `activity`.
UNSENT: Final = """
SELECT count(*) FROM messaging_outbox o
 WHERE o.state = 0
   AND CASE WHEN o.payload IS JSON OBJECT
            THEN (o.payload::jsonb ->> 'activity_id') = %(activity)s::text END
"""

# What must be 0, and what it says when it is not.
_COUNTS: Final = f"""
SELECT (SELECT count(*) FROM orders_reservation
         WHERE activity_id = %(activity)s AND release_state = 'DUE'),
       (SELECT count(*) FROM orders_order
         WHERE activity_id = %(activity)s AND status IN ('CREATED', 'PAYING', 'REFUNDING')),
       ({UNSENT}),
       (SELECT count(*) FROM orders_payment_attempt a JOIN orders_order o USING (order_id)
         WHERE o.activity_id = %(activity)s AND a.next_try_at IS NOT NULL),
       (SELECT count(*) FROM orders_refund r JOIN orders_order o USING (order_id)
         WHERE o.activity_id = %(activity)s AND r.status <> 'SUCCEEDED')
"""  # noqa: S608 - constants
_SAYINGS: Final = (
    "{} releases are due",
    "{} orders are unpaid or being refunded",
    "{} messages are not sent",
    "{} payments are not settled",
    "{} refunds are not settled",
)


def blockers(activity_id: int) -> tuple[str, ...]:
    """Return everything that speaks against settling the sale now; () when nothing does.

    Raises:
        LookupError: there is no such sale.
        GateUnavailable: Redis does not answer: what is open there is not known.

    Cost: four statements and one read of Redis.
    """
    sale = selectors.activity_record(activity_id)
    if sale is None:
        raise LookupError(f"there is no activity {activity_id}")
    found = []
    if sale.status is not ActivityStatus.CLOSED:
        found.append(f"it is {sale.status.value}, not CLOSED")
    if sale.rebuild_unfinished or sale.loss_noted_at:
        found.append("its gate is being rebuilt, or waits for it")
    stats = gate().run(verbs.pending_stats(activity_id=activity_id))
    if stats.pending or stats.open:
        found.append(f"{stats.open} reservations have no outcome, {stats.pending} are not sent")
    if held := held_reservations(activity_id):
        found.append(f"{len(held)} reservations are held by a ticket")
    if any(sku.unbooked_operations for sku in selectors.conservation(activity_id)):
        found.append("top-ups or cuts are on their way")
    with connection.cursor() as cursor:
        cursor.execute(_COUNTS, {"activity": activity_id})
        (counts,) = cursor.fetchall()
    found += [saying.format(n) for saying, n in zip(_SAYINGS, counts, strict=True) if n]
    return tuple(found)


def settle(*, activity_id: int, reason: str, user: "User") -> SettlementReport:
    """Settle a closed sale and freeze its report.

    Args:
        activity_id: the sale.
        reason: for the audit, not empty.
        user: needs `orders.settle_sale`.

    Raises:
        PermissionDenied: the user may not.
        LookupError: there is no such sale.
        SettlementRefused: something is still on its way, or a unit is not accounted for.
        GateUnavailable: Redis does not answer.

    Cost: as `blockers` and the report; one short transaction on the sale's row.
    """
    if not user.has_perm(PERMISSION):
        raise PermissionDenied(PERMISSION)
    if not reason.strip():
        raise SettlementRefused(("a reason is needed: it is the audit record",))
    sale = selectors.activity_record(activity_id)
    if sale is None:
        raise LookupError(f"there is no activity {activity_id}")
    reasons = blockers(activity_id)
    if reasons:
        raise SettlementRefused(reasons)
    try:
        # Of the version that was found at rest: it was not opened since, so nothing began.
        report = _settle(activity_id, version=sale.version, reason=reason, by=user.get_username())
    except OperationRefused as error:
        raise SettlementRefused((str(error),)) from None
    except DatabaseError as error:
        if classify(error) is not ErrorClass.CONTENTION:
            raise
        raise SettlementRefused(("the sale changed meanwhile: look again",)) from error
    log.warning("sale_settled", activity_id=activity_id, operator=user.get_username())
    return report


def _settle(activity_id: int, *, version: int, reason: str, by: str) -> SettlementReport:
    with transaction.atomic(durable=True):
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        activities.mark_settled(activity_id=activity_id, version=version)
        report = report_in_snapshot(activity_id)
        if not report.balanced:
            raise SettlementRefused(("units are not accounted for: look at the report",))
        Settlement.objects.create(
            activity_id=activity_id, settled_by=by, reason=reason.strip(), report=report.as_json()
        )
    return report


__all__ = ["PERMISSION", "blockers", "settle", "settlement_report"]

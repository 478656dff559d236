"""Removes a rehearsal: everything that an `is_test` sale left in PostgreSQL and at the gate.

Guarded: only a sale marked as a test, closed or settled, with nothing due, unpaid or unsent. A
command that the broker still delivers of it finds nothing and changes nothing. An event that is
sent and not consumed yet is not waited for, as when a sale is settled: a group that is behind
writes its row (read model, effect, mail) after the purge, and it stays. So let the groups catch up
first. The event archive keeps its rows (it is append-only) and loses them with their days; inbox
and outbox likewise.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog
from django.core.exceptions import PermissionDenied
from django.db import transaction

from inventory import selectors, verbs
from inventory.gate import gate
from inventory.rehearsal import delete_rehearsal
from inventory.states import ActivityStatus
from orders.database import begin, execute, fetch
from orders.errors import OrdersError
from orders.settlement.settle import UNSENT

if TYPE_CHECKING:
    from django.contrib.auth.models import User

log = structlog.get_logger(__name__)

PERMISSION: Final = "inventory.delete_activity"
_OF_ORDERS: Final = (
    "order_id IN (SELECT order_id FROM orders_order WHERE activity_id = %(activity)s)"
)
_OF_RESERVATIONS: Final = (
    "reservation_id IN (SELECT reservation_id FROM orders_reservation"
    " WHERE activity_id = %(activity)s)"
)
_OF_PAYMENTS: Final = (
    f"subject IN (SELECT attempt_id FROM orders_payment_attempt WHERE {_OF_ORDERS})"  # noqa: S608
    f" OR subject IN (SELECT provider_key FROM orders_refund WHERE {_OF_ORDERS})"
)
_OF_ACTIVITY: Final = "activity_id = %(activity)s"

# In the order of their references: children first.
_TABLES: Final = (
    ("orders_webhook", _OF_PAYMENTS),
    ("orders_refund", _OF_ORDERS),
    ("orders_payment_attempt", _OF_ORDERS),
    ("orders_notification", _OF_ACTIVITY),
    ("orders_effect", _OF_ACTIVITY),
    ("orders_query", _OF_ACTIVITY),
    ("orders_extension", _OF_RESERVATIONS),
    ("orders_item", _OF_ORDERS),
    ("orders_void", _OF_ACTIVITY),
    ("orders_settlement", _OF_ACTIVITY),
    ("orders_reservation", _OF_ACTIVITY),
    ("orders_order", _OF_ACTIVITY),
)

_QUARANTINE: Final = """
UPDATE messaging_quarantine SET status = 'RESOLVED', resolved_at = now(), resolution = 'PURGED'
WHERE activity_id = %s AND status = 'OPEN'
"""

_UNFINISHED: Final = f"""
SELECT
    (SELECT count(*) FROM orders_reservation WHERE activity_id = %(activity)s
        AND release_state = 'DUE'),
    (SELECT count(*) FROM orders_payment_attempt a JOIN orders_order o USING (order_id)
        WHERE o.activity_id = %(activity)s AND a.settled_at IS NULL),
    (SELECT count(*) FROM orders_refund r JOIN orders_order o USING (order_id)
        WHERE o.activity_id = %(activity)s AND r.status <> 'SUCCEEDED'),
    (SELECT count(*) FROM orders_order WHERE activity_id = %(activity)s
        AND status IN ('CREATED', 'PAYING', 'REFUNDING')),
    ({UNSENT})
"""  # noqa: S608 - constants


class RehearsalRefused(OrdersError):
    """The sale is no rehearsal, or not at rest; the text says what to do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PurgeReport:
    """Rows by table, and keys of the gate: deleted, or that would be in a dry run."""

    name: str
    rows: Mapping[str, int]
    gate_keys: int


def purge_rehearsal(
    *, activity_id: int, dry_run: bool = False, user: "User | None" = None
) -> PurgeReport:
    """Delete a rehearsal.

    Args:
        activity_id: a sale with `is_test`, CLOSED or SETTLED.
        dry_run: count only.
        user: who asks; None is the system itself (the command).

    Raises:
        PermissionDenied: the user may not delete sales.
        RehearsalRefused: it is no rehearsal, or not at rest; the text says what to do.
        GateUnavailable: Redis does not answer; nothing was deleted.

    Cost: one transaction, a statement a table; the gate's keys after its commit.
    """
    if user is not None and not user.has_perm(PERMISSION):
        raise PermissionDenied(PERMISSION)
    record = selectors.activity_record(activity_id)
    if record is None:
        raise RehearsalRefused(f"there is no activity {activity_id}")
    if not record.is_test:
        raise RehearsalRefused(f"activity {activity_id} is a real sale: is_test is off")
    if record.status not in {ActivityStatus.CLOSED, ActivityStatus.SETTLED}:
        raise RehearsalRefused(f"activity {activity_id} is {record.status}: close it first")
    stats = gate().run(verbs.pending_stats(activity_id=activity_id))
    if stats.open or stats.pending:
        raise RehearsalRefused(f"{stats.open} reservations are still under way: wait for rest")
    sku_ids = [sku.sku_id for sku in record.skus]
    with transaction.atomic(durable=True):
        begin()
        _require_rest(activity_id)
        rows = _rows(activity_id, dry_run=dry_run)
        if not dry_run:
            execute(_QUARANTINE, (activity_id,))
            rows |= delete_rehearsal(activity_id=activity_id)
    deleted = 0
    if not dry_run:
        deleted = gate().run(verbs.delete_gate(activity_id=activity_id, sku_ids=sku_ids))
        log.info(
            "rehearsal_purged",
            activity_id=activity_id,
            name=record.name,
            operator=user.get_username() if user else "command",
            rows=rows,
            gate_keys=deleted,
        )
    return PurgeReport(name=record.name, rows=rows, gate_keys=deleted)


def _require_rest(activity_id: int) -> None:
    ((due, attempts, refunds, unpaid, unsent),) = fetch(
        _UNFINISHED.replace("%(activity)s", str(int(activity_id)))
    )
    for count, what in (
        (due, "releases are DUE"),
        (attempts, "payments are not settled"),
        (refunds, "refunds are not settled"),
        (unpaid, "orders are neither paid nor ended"),
    ):
        if count:
            raise RehearsalRefused(f"{count} {what}: wait for rest, or cancel them")
    if unsent:  # an event of it would write rows of orders that are gone, and send mails
        raise RehearsalRefused(
            f"{unsent} messages are not sent: wait until the sender has sent them"
        )


def _rows(activity_id: int, *, dry_run: bool) -> dict[str, int]:
    counts = {}
    for table, where in _TABLES:
        condition = where.replace("%(activity)s", str(int(activity_id)))
        if dry_run:
            counts[table] = fetch(f"SELECT count(*) FROM {table} WHERE {condition}")[0][0]  # noqa: S608
        else:
            counts[table] = execute(f"DELETE FROM {table} WHERE {condition}")  # noqa: S608
    return counts

"""Proof: an item is VERIFIED only when the invariants of what it touched hold.

Checked by key after processing (orders, items, ledger, inbox, reservation in both stores), and for
the SKUs as a whole. Each look is an InvariantRun: the evidence that a ticket needs to be closed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import structlog
from django.db import transaction

import faultpoint
from dlq_admin import access, permissions
from dlq_admin.audit import record
from dlq_admin.audit.record import SYSTEM
from dlq_admin.models.replay import InvariantRun, ReplayBatch, ReplayItem
from dlq_admin.replay.moves import move_items
from dlq_admin.states import ITEM_PROCESSED, ITEM_SUCCESS, ItemStatus
from messaging.topology import CG_ORDER_CREATE
from orders.touched import TouchedReport, check_touched

if TYPE_CHECKING:
    from django.contrib.auth.models import User

log = structlog.get_logger(__name__)

LIMIT: Final = 200
_PROCESSED: Final = sorted(status.value for status in ITEM_PROCESSED)
_TOUCHED: Final = sorted(
    status.value for status in ITEM_SUCCESS | ITEM_PROCESSED | {ItemStatus.VERIFY_FAILED}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class InvariantResult:
    """A look at invariants. `detail` is {"breaches": [{kind, reservation_id, detail}, …]}."""

    passed: bool
    checked: int
    detail: dict[str, Any]
    at: datetime | None


def prove(batch: ReplayBatch) -> int:
    """Verify what was processed; returns how many items ended. A silent gate postpones it.

    Cost: the statements of `check_touched`, one update and one row for each look.
    """
    items = list(
        ReplayItem.objects.select_related("message")
        .filter(batch_id=batch.pk, status__in=_PROCESSED)
        .order_by("position")[:LIMIT]
    )
    if not items:
        return 0
    report = check_touched(_reservations(batch.consumer_group, items))
    if report.gate_silent:
        return 0
    bad = {breach.reservation_id for breach in report.breaches}
    ended = 0
    faultpoint.hit("replay.before_verify")
    with transaction.atomic(durable=True):
        for item in items:
            failed = "" in bad or (item.message.reservation_id or "") in bad
            to = ItemStatus.VERIFY_FAILED if failed else ItemStatus.VERIFIED
            moved = move_items(
                [item.pk],
                before=ItemStatus(item.status),
                to=to,
                reason=item.status_reason,
                evidence={"outcome": item.status, "reason": item.status_reason},
            )
            ended += moved
            if moved:
                _tell(batch, item, to)
        if ended:
            _keep(ticket_id=_ticket(batch), batch=batch, checked=len(items), report=report)
    return ended


def check_batch(batch: ReplayBatch) -> InvariantResult | None:
    """Look once more at everything that a batch touched, at its end; None with a silent gate."""
    items = list(
        ReplayItem.objects.select_related("message").filter(batch_id=batch.pk, status__in=_TOUCHED)
    )
    return _look(ticket_id=_ticket(batch), batch=batch, items=items)


def check_now(*, ticket_id: int, user: "User") -> InvariantResult | None:
    """Look at everything that the batches of a ticket touched; the run is kept as evidence.

    Args:
        ticket_id: the ticket.
        user: needs `dlq_admin.plan_replay`.

    Returns:
        What was found; None when the gate did not answer and nothing can be said.

    Raises:
        PermissionDenied: the user may not.

    Cost: as `check_touched` for each 200 messages.
    """
    access.require(user, permissions.PLAN_REPLAY)
    items = list(
        ReplayItem.objects.select_related("message", "batch").filter(
            batch__ticket_id=ticket_id, status__in=_TOUCHED
        )
    )
    result = _look(ticket_id=ticket_id, batch=None, items=items)
    if result:
        record(
            ticket_id=ticket_id,
            kind="INVARIANTS_CHECKED",
            actor=user,
            detail={"passed": result.passed, "checked": result.checked},
        )
    return result


def _look(
    *, ticket_id: int, batch: ReplayBatch | None, items: Sequence[ReplayItem]
) -> InvariantResult | None:
    breaches: list[dict[str, str]] = []
    for start in range(0, len(items), LIMIT):
        part = items[start : start + LIMIT]
        group = batch.consumer_group if batch else CG_ORDER_CREATE
        report = check_touched(_reservations(group, part))
        if report.gate_silent:
            return None
        breaches += _lines(report)
    run = InvariantRun.objects.create(
        ticket_id=ticket_id,
        batch=batch,
        passed=not breaches,
        checked=len(items),
        detail={"breaches": breaches[:50]},
    )
    return InvariantResult(
        passed=run.passed, checked=run.checked, detail=run.detail, at=run.created_at
    )


def _reservations(group: str, items: Sequence[ReplayItem]) -> list[str]:
    """Return the purchases whose outcome these items made: those of the order group's messages."""
    if group != CG_ORDER_CREATE:
        return []
    return [
        item.message.reservation_id
        for item in items
        if item.message.reservation_id and item.message.consumer_group == CG_ORDER_CREATE
        and item.status != ItemStatus.DISCARDED
    ]  # fmt: skip


def _keep(*, ticket_id: int, batch: ReplayBatch, checked: int, report: TouchedReport) -> None:
    lines = _lines(report)
    InvariantRun.objects.create(
        ticket_id=ticket_id,
        batch=batch,
        passed=not lines,
        checked=checked,
        detail={"breaches": lines[:50]},
    )
    if lines:
        log.error("invariant_breach", alert="REPLAY_INVARIANT", batch=batch.pk, breaches=lines[:5])


def _lines(report: TouchedReport) -> list[dict[str, str]]:
    return [
        {"kind": one.kind, "reservation_id": one.reservation_id, "detail": one.detail}
        for one in report.breaches
    ]


def _tell(batch: ReplayBatch, item: ReplayItem, to: ItemStatus) -> None:
    record(
        ticket_id=_ticket(batch),
        kind=f"ITEM_{to}",
        actor=SYSTEM,
        detail={
            "batch": batch.pk,
            "replay_id": item.replay_id,
            "message_id": item.message.message_id,
            "outcome": item.status,
        },
    )


def _ticket(batch: ReplayBatch) -> int:
    ticket_id: int = batch.ticket_id
    return ticket_id

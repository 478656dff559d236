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
from dlq_admin.models.replay import InvariantRun, ReplayBatch, ReplayItem
from dlq_admin.replay.moves import move_items, tell_item
from dlq_admin.states import ITEM_PROCESSED, ITEM_SUCCESS, ItemStatus
from messaging.topology import CG_ORDER_CREATE
from orders.touched import TouchedReport, check_touched

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.db.models import QuerySet

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
        _items().filter(batch_id=batch.pk, status__in=_PROCESSED).order_by("position")[:LIMIT]
    )
    if not items:
        return 0
    report = check_touched(_reservations(items))
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
                tell_item(
                    item,
                    ticket_id=batch.ticket_id,
                    to=to,
                    message_id=item.message.message_id,
                    outcome=item.status,
                )
        if ended:
            lines = _lines(report)
            _keep(batch.ticket_id, batch, checked=len(items), breaches=lines)
            if lines:
                log.error(
                    "invariant_breach", alert="REPLAY_INVARIANT", batch=batch.pk, breaches=lines[:5]
                )
    return ended


def check_batch(batch: ReplayBatch) -> InvariantResult | None:
    """Look once more at everything that a batch touched, at its end; None with a silent gate."""
    items = list(_items().filter(batch_id=batch.pk, status__in=_TOUCHED))
    return _look(batch.ticket_id, batch, items)


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
    items = list(_items().filter(batch__ticket_id=ticket_id, status__in=_TOUCHED))
    result = _look(ticket_id, None, items)
    if result:
        record(
            ticket_id=ticket_id,
            kind="INVARIANTS_CHECKED",
            actor=user,
            detail={"passed": result.passed, "checked": result.checked},
        )
    return result


def _items() -> "QuerySet[ReplayItem]":
    """Return items with their messages, without the bytes: a thousand bodies are not needed."""
    return ReplayItem.objects.select_related("message").defer("body", "message__body")


def _look(
    ticket_id: int, batch: ReplayBatch | None, items: Sequence[ReplayItem]
) -> InvariantResult | None:
    breaches: list[dict[str, str]] = []
    for start in range(0, len(items), LIMIT):
        report = check_touched(_reservations(items[start : start + LIMIT]))
        if report.gate_silent:
            return None
        breaches += _lines(report)
    run = _keep(ticket_id, batch, checked=len(items), breaches=breaches)
    return InvariantResult(
        passed=run.passed, checked=run.checked, detail=run.detail, at=run.created_at
    )


def _reservations(items: Sequence[ReplayItem]) -> list[str]:
    """Return the purchases whose outcome these items made: those of the order group's messages."""
    return [
        item.message.reservation_id
        for item in items
        if item.message.reservation_id and item.message.consumer_group == CG_ORDER_CREATE
        and item.status != ItemStatus.DISCARDED
    ]  # fmt: skip


def _keep(
    ticket_id: int, batch: ReplayBatch | None, *, checked: int, breaches: list[dict[str, str]]
) -> InvariantRun:
    return InvariantRun.objects.create(
        ticket_id=ticket_id,
        batch=batch,
        passed=not breaches,
        checked=checked,
        detail={"breaches": breaches[:50]},
    )


def _lines(report: TouchedReport) -> list[dict[str, str]]:
    return [
        {"kind": one.kind, "reservation_id": one.reservation_id, "detail": one.detail}
        for one in report.breaches
    ]

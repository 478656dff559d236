"""Brings operators' changes to their end at the gate; run by the request itself and by the scanner.

No claim is needed: every step is idempotent (by operation id at the gate, by a guarded UPDATE in
PostgreSQL) and fenced (by version and epoch), so that any number of drivers may work on one row, be
overtaken, or crash anywhere.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import structlog
from django.db import transaction
from django.db.models import F, Q, Sum
from django.db.models.functions import Now

import faultpoint
from inventory import stock, verbs
from inventory.contracts import AdjustCode, GateConfig, GateLoad, GateWriteCode
from inventory.errors import GateUnavailable
from inventory.gate import gate
from inventory.gate_status import alert_lost
from inventory.metrics import OPERATIONS
from inventory.models import Activity, GateOperation, Sku, Stock
from inventory.selectors import activity_record
from inventory.states import (
    ActivityStatus,
    GateStatus,
    LedgerKind,
    OperationKind,
    OperationStatus,
)
from inventory.turns import take_turns

log = structlog.get_logger(__name__)

STATUS_KINDS: Final = frozenset(
    {
        OperationKind.OPEN,
        OperationKind.RESUME,
        OperationKind.PAUSE,
        OperationKind.CLOSE,
        OperationKind.STOP,
    }
)
# A sale that was closed before its first open stays closed, with its gate loaded again.
LOADABLE: Final = frozenset({ActivityStatus.WARM, ActivityStatus.CLOSED})
_OVERTAKEN: Final = "overtaken by a newer change"


class WaitingOperation(NamedTuple):
    """An operation that is not at its end, as `waiting_operations` orders them."""

    requested_at: datetime
    operation_id: str
    activity_id: int


def waiting_operations(
    *, limit: int, after: WaitingOperation | None = None
) -> list[WaitingOperation]:
    """Return operations that are not at their end, the oldest first. One statement.

    Args:
        limit: at most so many.
        after: only those that come after this one, so that stuck ones leave others their turn.
    """
    waiting = GateOperation.objects.filter(status=OperationStatus.REQUESTED)
    if after is not None:
        waiting = waiting.filter(
            Q(requested_at__gt=after.requested_at)
            | Q(requested_at=after.requested_at, pk__gt=after.operation_id)
        )
    rows = waiting.order_by("requested_at", "pk").values_list("requested_at", "pk", "activity_id")
    return [WaitingOperation(*row) for row in rows[:limit]]


def drive(limit: int = 100) -> int:
    """Drive operations that are not DONE, the oldest first; as `drive_all`.

    Args:
        limit: at most so many rows.
    """
    return drive_all(waiting_operations(limit=limit))


def drive_all(operations: Sequence[WaitingOperation]) -> int:
    """Drive these operations in their order; one that is stuck or ill holds no other up.

    Returns:
        How many came to their end.

    Raises:
        GateUnavailable: Redis does not answer for one; its row waits, the others had their turn.
    """
    return take_turns(operations, _take_turn, sale_of=lambda operation: operation.activity_id)


def _take_turn(operation: WaitingOperation) -> int:
    try:
        return drive_operation(operation.operation_id) is not OperationStatus.REQUESTED
    except GateUnavailable:
        raise
    except Exception:
        log.exception("gate operation failed", operation_id=operation.operation_id)
        return 0


def drive_operation(operation_id: str) -> OperationStatus:
    """Take one operation as far as it goes now.

    Returns:
        Its status after that; REQUESTED when it must wait (for a rebuild, for example).

    Raises:
        GateUnavailable: Redis does not answer.
    """
    operation = GateOperation.objects.get(pk=operation_id)
    if operation.status != OperationStatus.REQUESTED:
        return OperationStatus(operation.status)
    result = _STEPS[OperationKind(operation.kind)](operation)
    if result is not OperationStatus.REQUESTED:
        OPERATIONS.labels(operation.kind, result.value).inc()
        log.info(
            "gate operation ended",
            operation_id=operation_id,
            kind=operation.kind,
            result=result.value,
            activity_id=operation.activity_id,
        )
    return result


def _end(
    operation: GateOperation,
    to: OperationStatus,
    *,
    note: str = "",
    units_done: int | None = None,
    epoch: int = 0,
) -> OperationStatus:
    """Guarded UPDATE to DONE or REFUSED; returns what it is then: another may have been first."""
    GateOperation.objects.filter(pk=operation.pk, status=OperationStatus.REQUESTED).update(
        status=to, done_at=Now(), note=note, units_done=units_done, epoch=epoch
    )
    return _status(operation)


def _status(operation: GateOperation) -> OperationStatus:
    return OperationStatus(
        GateOperation.objects.values_list("status", flat=True).get(pk=operation.pk)
    )


def _wait(operation: GateOperation, note: str) -> OperationStatus:
    """Leave the row REQUESTED and say on it why."""
    GateOperation.objects.filter(pk=operation.pk, status=OperationStatus.REQUESTED).exclude(
        note=note
    ).update(note=note)
    return OperationStatus.REQUESTED


def _wait_or_end(operation: GateOperation, code: GateWriteCode, *, opened: bool) -> OperationStatus:
    """Judge the answer of a script that writes gates."""
    faultpoint.hit("operation.after_gate")
    if code is GateWriteCode.OK:
        return _end(operation, OperationStatus.DONE)
    if code is GateWriteCode.STALE:
        return _end(operation, OperationStatus.REFUSED, note=_OVERTAKEN)
    if code is GateWriteCode.MISSING:
        if not opened:  # nothing to change yet; warm-up loads what PostgreSQL holds by then
            return _end(operation, OperationStatus.DONE, note="the gate was not loaded")
        alert_lost(operation.activity_id)
        return _wait(operation, "GATE_LOST: waits for rebuild_gate")
    return _wait(operation, f"the gate answered {code.name}")


def _sku_epochs(activity_id: int) -> dict[int, int]:
    return dict(
        Sku.objects.filter(activity_id=activity_id).order_by("pk").values_list("pk", "epoch")
    )


def _was_opened(activity_id: int) -> bool:
    return Activity.objects.filter(pk=activity_id, opened_at__isnull=False).exists()


def _load(operation: GateOperation) -> OperationStatus:
    """Warm-up: a new epoch, then the whole stock, as long as the sale was never opened.

    Each load takes an epoch of its own, so that units moved at an earlier load of the gate are not
    booked against this one.
    """
    activity_id = operation.activity_id
    with transaction.atomic(durable=True):
        Activity.objects.select_for_update(no_key=True).get(pk=activity_id)
        available = stock.lock(_sku_epochs(activity_id))
        if _status(operation) is not OperationStatus.REQUESTED:
            return _status(operation)  # an epoch of a load that nobody makes would block the open
        record = activity_record(activity_id)
        if record is None or record.opened_at or record.status not in LOADABLE:
            return _end(operation, OperationStatus.REFUSED, note="the sale was opened or settled")
        # A booked top-up that is not DONE will be given to the gate by its own driver.
        undriven = dict(
            GateOperation.objects.filter(
                activity_id=activity_id,
                kind=OperationKind.TOP_UP,
                status=OperationStatus.REQUESTED,
            )
            .values("sku_id")
            .annotate(total=Sum("units"))
            .values_list("sku_id", "total")
        )
        Sku.objects.filter(activity_id=activity_id).update(epoch=F("epoch") + 1)
        epochs = _sku_epochs(activity_id)
        loads = [
            GateLoad(
                sku_id=sku.sku_id,
                units=available[sku.sku_id] - undriven.get(sku.sku_id, 0),
                epoch=epochs[sku.sku_id],
                config=record.gate_config(sku),
            )
            for sku in record.skus
        ]
    code = gate().run(verbs.load_gate(activity_id=activity_id, gates=loads, version=record.version))
    faultpoint.hit("operation.after_gate")
    if code is GateWriteCode.REFUSED:
        return _refuse_foreign_gate(operation)
    if code is not GateWriteCode.OK:
        return _wait(operation, "another load was newer")
    with transaction.atomic(durable=True):
        stock.lock(epochs)
        if _sku_epochs(activity_id) != epochs:
            return _wait(operation, "another load began meanwhile")
        # An edit that found no gate yet has left this to the load, which may have read before it.
        now = activity_record(activity_id)
        if now is None or [now.gate_config(sku) for sku in now.skus] != [g.config for g in loads]:
            return _wait(operation, "window or limits were edited meanwhile: loads again")
        return _end(operation, OperationStatus.DONE)


def _refuse_foreign_gate(operation: GateOperation) -> OperationStatus:
    """End a load that found a gate which was opened before; stop it when this sale never was.

    A sale is noted as opened before its gate is: such a gate is left from another database whose
    sale had the same id, and sells what is not there.
    """
    activity_id = operation.activity_id
    if _was_opened(activity_id):
        return _end(operation, OperationStatus.REFUSED, note="the gate was opened before")
    sku_ids = list(_sku_epochs(activity_id))
    newest = max(
        gate().run(
            verbs.applied_operations(activity_id=activity_id, sku_id=sku_id, operation_ids=[])
        )[0]
        for sku_id in sku_ids
    )
    gate().run(
        verbs.close_gate(
            activity_id=activity_id, sku_ids=sku_ids, version=newest, status=GateStatus.CLOSED
        )
    )
    log.error(
        "foreign gate stopped",
        alert="FOREIGN_GATE",
        activity_id=activity_id,
        action="delete the keys of this sale in Redis, then warm up again",
    )
    return _end(
        operation,
        OperationStatus.REFUSED,
        note="Redis holds the gate of another sale with this id; it was stopped",
    )


def _open(operation: GateOperation) -> OperationStatus:
    code = gate().run(
        verbs.open_gate(
            activity_id=operation.activity_id,
            epochs=_sku_epochs(operation.activity_id),
            version=operation.version,
            first=operation.payload["first"],
        )
    )
    return _wait_or_end(operation, code, opened=True)


def _close(operation: GateOperation) -> OperationStatus:
    code = gate().run(
        verbs.close_gate(
            activity_id=operation.activity_id,
            sku_ids=list(_sku_epochs(operation.activity_id)),
            version=operation.version,
            status=(
                GateStatus.PAUSED if operation.kind == OperationKind.PAUSE else GateStatus.CLOSED
            ),
        )
    )
    return _wait_or_end(operation, code, opened=_was_opened(operation.activity_id))


def _edit(operation: GateOperation) -> OperationStatus:
    code = gate().run(
        verbs.edit_gate(
            activity_id=operation.activity_id,
            configs={
                int(sku_id): GateConfig(**values)
                for sku_id, values in operation.payload["gates"].items()
            },
            version=operation.version,
        )
    )
    return _wait_or_end(operation, code, opened=_was_opened(operation.activity_id))


def _move_units(operation: GateOperation) -> OperationStatus:
    """Top-up or cut: the gate, by the epoch that PostgreSQL holds; the row, if it still does."""
    sku_id = operation.sku_id
    assert sku_id is not None  # noqa: S101 - written by request_top_up and request_cut
    is_cut = operation.kind == OperationKind.CUT
    epoch = Sku.objects.values_list("epoch", flat=True).get(pk=sku_id)
    reply = gate().run(
        verbs.adjust_stock(
            activity_id=operation.activity_id,
            sku_id=sku_id,
            operation_id=operation.pk,
            units=-operation.units if is_cut else operation.units,
            epoch=epoch,
        )
    )
    faultpoint.hit("operation.after_gate")
    if reply.code is AdjustCode.MISSING and _was_opened(operation.activity_id):
        alert_lost(operation.activity_id)
    if reply.code not in {AdjustCode.OK, AdjustCode.REPEATED}:
        return _wait(operation, f"the gate answered {reply.code.name}")
    with transaction.atomic(durable=True):
        available = stock.lock([sku_id])
        # Read after the lock: whoever raises the epoch holds it.
        if Sku.objects.values_list("epoch", flat=True).get(pk=sku_id) != epoch:
            return _wait(operation, "a rebuild came between: starts over")
        if not is_cut:
            return _end(operation, OperationStatus.DONE, units_done=reply.units, epoch=epoch)
        taken = -reply.units
        if _status(operation) is not OperationStatus.REQUESTED:
            return _status(operation)  # booked by another driver: the lock makes this sure
        if taken > available[sku_id]:
            log.error(
                "cut not booked",
                alert="CUT_EXCEEDS_STOCK",
                operation_id=operation.pk,
                taken=taken,
                available=available[sku_id],
            )
            return _wait(operation, "the gate gave more than is available: needs rebuild_gate")
        ended = _end(
            operation,
            OperationStatus.DONE if taken else OperationStatus.REFUSED,
            note="" if taken else "nothing was left to cut",
            units_done=taken,
            epoch=epoch,
        )
        if taken:
            Stock.objects.filter(pk=sku_id, available__gte=taken).update(
                available=F("available") - taken, cut=F("cut") + taken
            )
            stock.book(
                [
                    stock.LedgerLine(
                        activity_id=operation.activity_id,
                        sku_id=sku_id,
                        kind=LedgerKind.CUT,
                        source_id=operation.pk,
                        delta=-taken,
                        units=taken,
                    )
                ]
            )
        return ended


_STEPS: Final[dict[OperationKind, Callable[[GateOperation], OperationStatus]]] = {
    OperationKind.WARM_UP: _load,
    OperationKind.OPEN: _open,
    OperationKind.RESUME: _open,
    OperationKind.PAUSE: _close,
    OperationKind.CLOSE: _close,
    OperationKind.STOP: _close,
    OperationKind.EDIT: _edit,
    OperationKind.TOP_UP: _move_units,
    OperationKind.CUT: _move_units,
}

"""That Redis lost data: noted in PostgreSQL first, then the gate is closed, then people are told.

Only `rebuild_gate` opens the gate again; it is never run by itself.
"""

import json
from collections.abc import Sequence
from typing import Final

import structlog
from django.db import transaction

import faultpoint
from inventory import operations, rebuild, selectors, verbs
from inventory.contracts import GateState, GateWriteCode
from inventory.errors import OperationRefused
from inventory.gate import gate
from inventory.rebuild import Run
from messaging import quarantine
from orders import metrics

log = structlog.get_logger(__name__)

GROUP: Final = "GATE"  # stands in the group's place, as OUTBOX does
LOST: Final = "GATE_LOST"
OLDER_COPY: Final = "REDIS_OLDER_COPY"
MARK_GONE: Final = "REDIS_MARK_GONE"
POSTGRES_OLDER: Final = "POSTGRES_OLDER_COPY"


def note_loss(*, activity_id: int, kind: str, reason: str, at_least: int = 0) -> Run | None:
    """Note a loss with the run that it begins, close the gate, and open an item for people.

    Args:
        activity_id: the sale.
        kind: LOST, OLDER_COPY, MARK_GONE or POSTGRES_OLDER.
        reason: what was seen.
        at_least: the run's number is not smaller.

    Returns:
        The run that `rebuild_gate` has to follow, None when the loss was noted before.

    Raises:
        GateUnavailable: it is noted, but the gate is not closed yet: `close_again`.

    Cost: one transaction of seven statements, one script.
    """
    with transaction.atomic(durable=True):
        run = _note(activity_id, kind, reason, at_least=at_least)
    if run is None:
        return None
    _tell(run, kind, reason)
    faultpoint.hit("rebuild.after_note")
    close_again(run)
    return run


def note_older_copy(*, activity_id: int, reason: str, others: Sequence[int]) -> list[Run]:
    """Note that the Redis of a sale is an older copy, for every sale on it, in one transaction.

    A sale alone may be unable to tell: the step of its mark that would show it was late, or what
    the copy forgot of it (a stop, a cut) leaves no other trace. Rule `whole-copy`.

    Args:
        activity_id: the sale that showed it.
        reason: what was seen.
        others: the other served sales of that Redis.

    Returns:
        The runs that `rebuild_gate` has to follow; sales whose loss was noted before have none.

    Raises:
        GateUnavailable: they are noted, but not all gates are closed yet: `close_again`.

    Cost: one transaction of seven statements a sale, one script a sale.
    """
    reasons = dict.fromkeys(others, f"the Redis of sale {activity_id} is an older copy: {reason}")
    reasons[activity_id] = reason
    runs: list[Run] = []
    with transaction.atomic(durable=True):
        for one in sorted(reasons):
            try:
                run = _note(one, OLDER_COPY, reasons[one])
            except OperationRefused:  # settled meanwhile
                continue
            if run is not None:
                runs.append(run)
    for run in runs:
        _tell(run, OLDER_COPY, reasons[run.activity_id])
    faultpoint.hit("rebuild.after_note")
    for run in runs:
        close_again(run)
    return runs


def stop_for_older_postgres(
    *, activity_id: int, states: Sequence[GateState | None], reason: str
) -> Run | None:
    """PostgreSQL came back from an older copy: what it sold since is unknown to it. Stop the sale.

    The sale stays CLOSED after the rebuild, until an operator opens it: orders are missing. It is
    stopped first: whoever dies between the two leaves a gate that shows the same again.

    Args:
        activity_id: the sale.
        states: its gates.
        reason: what was seen.

    Returns:
        The run that `rebuild_gate` has to follow, None when another process was faster.

    Raises:
        GateUnavailable: it is noted, but the gate is not closed yet: `close_again`.

    Cost: as `note_loss`, a stop, and a read for each SKU.
    """
    found = [state for state in states if state is not None]
    seen = max((max(state.rebuild_run, state.rebuild_seen) for state in found), default=0)
    # The gate takes no change that is older than its last one, an open after the rebuild neither.
    versions = [
        gate().run(
            verbs.applied_operations(activity_id=activity_id, sku_id=state.sku_id, operation_ids=[])
        )[:2]
        for state in found
    ]
    operations.request_stop(
        activity_id=activity_id,
        reason=reason,
        version_above=max((max(pair) for pair in versions), default=0),
    )
    run = note_loss(activity_id=activity_id, kind=POSTGRES_OLDER, reason=reason, at_least=seen + 1)
    if run is not None:
        return run
    record = selectors.activity_record(activity_id)
    if record is None:
        return None
    if record.rebuild_run > seen:  # another process has noted it, and may have died before this
        run = rebuild.newest_run(activity_id)
        if run is not None and run.loss_noted:
            close_again(run)
        return None
    # The older copy has a loss noted, whose run is none for a gate that has seen newer ones.
    with transaction.atomic(durable=True):
        run = rebuild.begin_run(
            activity_id=activity_id,
            note_loss=True,
            reason=f"{POSTGRES_OLDER}: {reason}",
            at_least=seen + 1,
        )
    _tell(run, POSTGRES_OLDER, reason)
    close_again(run)
    return run


def _note(activity_id: int, kind: str, reason: str, *, at_least: int = 0) -> Run | None:
    run = rebuild.note_new_loss(
        activity_id=activity_id, reason=f"{kind}: {reason}", at_least=at_least
    )
    if run is not None:
        quarantine.store_in_transaction([_item(activity_id, kind)])
    return run


def _tell(run: Run, kind: str, reason: str) -> None:
    metrics.GATE_LOSS.labels(kind=kind).inc()
    log.error(
        "gate_loss_noted",
        alert=kind,
        activity_id=run.activity_id,
        run=run.number,
        reason=reason,
        action="the sale answers 503 until rebuild_gate has run",
    )


def close_again(run: Run) -> GateWriteCode:
    """Close a gate whose loss is noted by this run: its first script, harmless when repeated."""
    code = gate().run(
        verbs.close_for_rebuild(
            activity_id=run.activity_id,
            sku_ids=run.sku_ids,
            run=run.number,
            loss_noted=run.loss_noted,
        )
    )
    if code is GateWriteCode.OK:
        rebuild.note_closed(run)
    return code


def settle_item(activity_id: int, resolution: str) -> None:
    """Close the item of a sale's gate; inside the caller's transaction."""
    quarantine.resolve(group=GROUP, message_ids=[_item_id(activity_id)], resolution=resolution)


def _item_id(activity_id: int) -> str:
    return f"gate:{activity_id}"


def _item(activity_id: int, kind: str) -> quarantine.QuarantineEntry:
    # The same body each time: a sale has one item, with its occurrences.
    body = {"activity_id": activity_id, "what_to_do": "docs/operations/rebuild.md"}
    return quarantine.own_entry(
        group=GROUP,
        message_id=_item_id(activity_id),
        reason=kind,
        keys=[str(activity_id)],
        body=json.dumps(body).encode(),
    )

"""That Redis lost data: noted in PostgreSQL first, then the gate is closed, then people are told.

Only `rebuild_gate` opens the gate again; it is never run by itself.
"""

import json
from typing import Final

import structlog
from django.db import transaction

import faultpoint
from inventory import rebuild, verbs
from inventory.contracts import GateWriteCode
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
        run = rebuild.note_new_loss(
            activity_id=activity_id, reason=f"{kind}: {reason}", at_least=at_least
        )
        if run is None:
            return None
        quarantine.store_in_transaction([_item(activity_id, kind)])
    metrics.GATE_LOSS.labels(kind=kind).inc()
    log.error(
        "gate_loss_noted",
        alert=kind,
        activity_id=activity_id,
        run=run.number,
        reason=reason,
        action="the sale answers 503 until rebuild_gate has run",
    )
    faultpoint.hit("rebuild.after_note")
    close_again(run)
    return run


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

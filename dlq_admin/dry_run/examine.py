"""From a dead message and the rows of the stores to a judgement.

The same code for the dry run and for the look under lock right before a send.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db import connection

from dlq_admin.dry_run.dead import Dead
from dlq_admin.dry_run.plan_hash import item_hash
from dlq_admin.dry_run.verdict import (
    Judgement,
    OrderFacts,
    judge_compensate,
    judge_discard,
    judge_order,
    judge_other,
)
from dlq_admin.states import Disposition
from messaging.quarantine import OUTBOX_GROUP
from messaging.topology import CG_ORDER_CREATE
from orders import dead_letters
from orders.dead_letters import PurchaseRows


@dataclass(frozen=True, kw_only=True, slots=True)
class Examination:
    """A judgement, what it was made from, and the hash that an approval is bound to."""

    judgement: Judgement
    versions: Mapping[str, str]
    item_hash: str
    now: datetime
    order_id: str


def gate_names(dead: Dead, *, extension_s: int) -> bool | None:
    """Ask the gate, outside any transaction, when an extension is wanted; None when it is not."""
    if dead.group != CG_ORDER_CREATE or extension_s <= 0 or not dead.reservation_id:
        return None
    return dead_letters.gate_names(
        activity_id=dead.activity_id,
        sku_id=dead.sku_id,
        user_id=dead.user_id,
        reservation_id=dead.reservation_id,
    )


def examine(
    dead: Dead,
    *,
    disposition: Disposition,
    extension_s: int,
    names: bool | None,
    lock: bool = False,
) -> Examination:
    """Judge one message inside the caller's transaction.

    Args:
        dead: the message, with the edited body if there is one.
        disposition: what is to be done with it.
        extension_s: seconds of the extension row that the approval would write; 0 for none.
        names: answer of `gate_names`.
        lock: hold the quarantine row until the transaction ends.

    Cost: three to five statements by key.
    """
    known = dead_letters.inbox_of(group=dead.group, message_id=dead.message_id)
    inbox = known.outcome.value if known else ""
    rows = _rows(dead, lock=lock) if dead.group == CG_ORDER_CREATE else None
    now = rows.now if rows else _now()
    judgement = _judge(
        dead,
        rows=rows,
        inbox=inbox,
        inbox_reason=known.reason if known else "",
        disposition=disposition,
        extension_s=extension_s,
        names=names,
        now=now,
    )
    versions = {
        "inbox": f"{inbox} {known.reason}".strip() if known else "",
        "dead": str(dead.version),
        "held": "" if rows is None else str(rows.held),
        "order": f"{rows.order_id} {rows.order_status} {rows.order_version}" if rows else "",
        "reservation": f"{rows.outcome} {rows.reject_reason} {rows.release_state}" if rows else "",
    }
    return Examination(
        judgement=judgement,
        versions=versions,
        item_hash=item_hash(
            ids={
                "group": dead.group,
                "message_id": dead.message_id,
                "reservation_id": dead.reservation_id,
            },
            payload_sha256=dead.sha256,
            verdict=f"{disposition} {judgement.verdict} {judgement.reason}",
            versions=versions,
        ),
        now=now,
        order_id=rows.order_id if rows else "",
    )


def _judge(
    dead: Dead,
    *,
    rows: PurchaseRows | None,
    inbox: str,
    inbox_reason: str,
    disposition: Disposition,
    extension_s: int,
    names: bool | None,
    now: datetime,
) -> Judgement:
    held = bool(rows and rows.held)
    if disposition is Disposition.COMPENSATE:
        return judge_compensate(
            is_order_group=rows is not None,
            held=held,
            complete=bool(rows and rows.complete),
            inbox=inbox,
        )
    if disposition is Disposition.DISCARD:
        return judge_discard(is_order_group=rows is not None, held=held)
    error = "" if dead.group == OUTBOX_GROUP else _body_error(dead)
    if rows is None:
        return judge_other(body_error=error, hash_matches=dead.hash_matches, inbox=inbox)
    return judge_order(
        OrderFacts(
            body_error=error,
            hash_matches=dead.hash_matches,
            inbox=inbox,
            inbox_reason=inbox_reason,
            order_status=rows.order_status,
            other_live_order=bool(rows.other_live_order),
            release_state=rows.release_state,
            outcome=rows.outcome,
            valid_until=rows.valid_until,
            now=now,
            extended=rows.extended_until is not None and rows.extended_until > now,
            extension_asked=extension_s > 0,
            gate_names_it=names,
            held=held,
            voided=rows.voided,
            stock=rows.available,
            quantity=dead.quantity or 1,
        )
    )


def _body_error(dead: Dead) -> str:
    return dead_letters.body_error(group=dead.group, body=dead.body)


def _rows(dead: Dead, *, lock: bool) -> PurchaseRows:
    return dead_letters.purchase_rows(
        reservation_id=dead.reservation_id,
        activity_id=dead.activity_id,
        sku_id=dead.sku_id,
        user_id=dead.user_id,
        valid_until=dead.valid_until,
        message_id=dead.message_id,
        lock=lock,
    )


def _now() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
        return now

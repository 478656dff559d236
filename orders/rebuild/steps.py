"""The steps of a rebuild run, one function each: a process may stall or die between any two.

    begin (PostgreSQL) -> close -> wait -> begin_rebuilding -> read_and_settle -> write -> finish

Every step carries the run's number and is refused after a newer run began; a run that died starts
again from the top. Source: docs/protocol.md, "Operators and rebuild".
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.db import transaction

import faultpoint
from inventory import rebuild, verbs
from inventory.contracts import GateWriteCode
from inventory.errors import RebuildOvertaken
from inventory.gate import gate
from inventory.rebuild import Run
from inventory.states import GateStatus
from orders.database import fetch
from orders.errors import RebuildWaits
from orders.held import held_reservations
from orders.rebuild.loss import settle_item
from orders.rebuild.transaction import Plan

_PAGE: Final = 5_000
# Every transaction that decides an outcome writes the inbox first. All roles may read pg_locks.
_WRITING_OUTCOMES: Final = """
SELECT virtualtransaction FROM pg_locks
 WHERE locktype = 'relation' AND relation = 'messaging_inbox'::regclass
   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND mode = 'RowExclusiveLock'
"""


class LossFound(Exception):
    """A gate is gone and no loss was noted when the run began: it starts again from the top."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiting:
    """What a run still waits for; `done` when nothing of it is left."""

    pending: int
    open: int  # without the held ones
    held: int
    seconds: float  # until the newest reservation that Redis may have lost is past its end
    transactions: bool  # one that began before that is still open

    @property
    def done(self) -> bool:
        """Whether the run may go on."""
        return not (self.pending or self.open or self.seconds > 0 or self.transactions)


@dataclass(slots=True)
class Deadline:
    """After a loss: when nothing that Redis lost can become an order any more.

    `open_then` are the transactions that were writing outcomes when that instant was reached: one
    of them may have judged its messages by the clock of a moment before.
    """

    at: datetime | None
    open_then: frozenset[str] | None = None


def close(run: Run) -> Deadline:
    """Close all gates and leave the run's number there.

    Raises:
        LossFound: a gate is missing and no loss was noted.
        RebuildOvertaken: a newer run was at the gate.
    """
    code = gate().run(
        verbs.close_for_rebuild(
            activity_id=run.activity_id,
            sku_ids=run.sku_ids,
            run=run.number,
            loss_noted=run.loss_noted,
        )
    )
    _judge(run, code)
    at = rebuild.note_closed(run)
    faultpoint.hit("rebuild.after_close")
    return Deadline(at=None if run.forced else at)


def look(run: Run, deadline: Deadline) -> Waiting:
    """Look at what the run waits for.

    Raises:
        GateUnavailable: Redis does not answer now: look again.

    Cost: one read of Redis for each 5 000 open reservations, four statements.
    """
    stats = gate().run(verbs.pending_stats(activity_id=run.activity_id))
    open_ids = _open_ids(run.activity_id) if stats.open else set()
    held = {row.reservation_id for row in held_reservations(run.activity_id)} & open_ids
    seconds, transactions = _past(deadline)
    return Waiting(
        pending=stats.pending,
        open=len(open_ids - held),
        held=len(held),
        seconds=seconds,
        transactions=transactions,
    )


def begin_rebuilding(run: Run) -> None:
    """Go to REBUILDING: from here confirm, release and adjust_stock answer RETRY.

    Raises:
        LossFound, RebuildOvertaken: as `close`.
        RebuildWaits: the gate is not CLOSED (any more).
    """
    code = gate().run(
        verbs.begin_rebuild(activity_id=run.activity_id, sku_ids=run.sku_ids, run=run.number)
    )
    _judge(run, code)
    faultpoint.hit("rebuild.after_begin")


def write(run: Run, plan: Plan) -> None:
    """Write what the transaction found and leave REBUILDING; one script for all SKUs.

    Raises:
        LossFound, RebuildOvertaken, RebuildWaits: as `begin_rebuilding`.
    """
    code = gate().run(
        verbs.finish_rebuild(
            activity_id=run.activity_id,
            gates=plan.gates,
            run=run.number,
            mark=plan.mark,
            status=plan.status,
            version=plan.version,
        )
    )
    _judge(run, code)
    faultpoint.hit("rebuild.after_write")


def finish(run: Run) -> None:
    """Clear the note of the loss: the gate is there again.

    Raises:
        RebuildOvertaken: a newer run began: it clears nothing, the note is that run's.
    """
    with transaction.atomic(durable=True):
        if not rebuild.finish_run(run):
            raise RebuildOvertaken(_overtaken(run))
        settle_item(run.activity_id, "REBUILT")


def gate_status(run: Run) -> set[GateStatus]:
    """Return the statuses of the sale's gates after the run."""
    states = [
        gate().run(verbs.gate_state(activity_id=run.activity_id, sku_id=sku_id))
        for sku_id in run.sku_ids
    ]
    return {GateStatus(state.status) for state in states if state is not None}


def _judge(run: Run, code: GateWriteCode) -> None:
    if code is GateWriteCode.OK:
        return
    if code is GateWriteCode.MISSING:
        raise LossFound(f"a gate of activity {run.activity_id} is gone")
    if code is GateWriteCode.STALE:
        raise RebuildOvertaken(_overtaken(run))
    raise RebuildWaits(f"the gate of activity {run.activity_id} answered {code.name}")


def _overtaken(run: Run) -> str:
    return f"run {run.number} of activity {run.activity_id} was overtaken by a newer one"


def _past(deadline: Deadline) -> tuple[float, bool]:
    """Return the seconds left, and whether a transaction of before the deadline is still open."""
    if deadline.at is None:
        return 0.0, False
    ((seconds,),) = fetch(
        "SELECT extract(epoch FROM %s::timestamptz - clock_timestamp())::float8", (deadline.at,)
    )
    if seconds > 0:
        return seconds, True
    writing = frozenset(row[0] for row in fetch(_WRITING_OUTCOMES))
    if deadline.open_then is None:
        deadline.open_then = writing
    return 0.0, bool(deadline.open_then & writing)


def _open_ids(activity_id: int) -> set[str]:
    ids: set[str] = set()
    while True:
        page = gate().run(
            verbs.open_page(
                activity_id=activity_id,
                min_score_ms=0,
                max_score_ms=2**53 - 1,
                offset=len(ids),
                limit=_PAGE,
            )
        )
        ids |= {reservation_id for reservation_id, _ in page}
        if len(page) < _PAGE:
            return ids

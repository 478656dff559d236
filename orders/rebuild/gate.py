"""`rebuild_gate` from its first step to its last; `steps.py` has the steps."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog
from django.db import transaction

import faultpoint
from inventory import rebuild, selectors
from inventory.errors import GateUnavailable, OperationRefused
from inventory.gate_status import is_postgres_older, report_gate
from inventory.rebuild import Run
from orders.errors import RebuildWaits
from orders.rebuild import loss, steps
from orders.rebuild.steps import Deadline, LossFound, Waiting
from orders.rebuild.transaction import Found, read_and_settle

if TYPE_CHECKING:
    from django.contrib.auth.models import User

log = structlog.get_logger(__name__)

POLL_S: Final = 0.2
RESTARTS: Final = 5

Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rebuilt:
    """A finished run. `status` is what the gates are in now."""

    run: Run
    found: Found
    status: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    """What a run would meet now; nothing was changed."""

    name: str
    status: str
    condition: str
    loss_noted: bool
    unfinished_run: int  # 0: none
    pending: int
    open: int
    held: int


def rebuild_gate(
    *,
    activity_id: int,
    note_loss: bool = False,
    force: bool = False,
    reason: str,
    user: "User | None" = None,
    progress: Progress = lambda line: None,
    poll_s: float = POLL_S,
) -> Rebuilt:
    """Make the gate of a sale anew; new reservations are refused until it ends.

    Args:
        activity_id: a sale that was opened once.
        note_loss: Redis lost data; found out by itself when the keys are gone.
        force: after a loss, do not wait until the newest possible valid_until has passed: what
            Redis lost and still becomes an order is then sold twice at the gate, and the last
            buyers are rejected with NO_FINAL_STOCK.
        reason: for the audit, not empty.
        user: who asks; None is the system itself.
        progress: told what happens, line by line.
        poll_s: pause between two looks at what it waits for.

    Returns:
        What the run found and the status of the gate now: what PostgreSQL holds, stops included.

    Raises:
        PermissionDenied, OperationRefused: it may not be, or cannot be.
        RebuildOvertaken: another run began meanwhile; that one ends it.
        RebuildWaits: the gate kept changing under it: run it again.
        GateUnavailable: Redis does not answer: run it again, it starts from the top.
    """
    for _ in range(RESTARTS):
        run = begin(
            activity_id=activity_id, note_loss=note_loss, force=force, reason=reason, user=user
        )
        progress(f"run {run.number} is noted{', with the loss' if run.loss_noted else ''}")
        try:
            return _follow(run, progress, poll_s)
        except LossFound as error:
            progress(f"{error}: noted as lost, from the top")
            note_loss = True
        except RebuildWaits as error:
            progress(f"{error}: from the top")
    raise RebuildWaits(f"the gate of activity {activity_id} kept changing; run it again")


def begin(
    *, activity_id: int, note_loss: bool, force: bool, reason: str, user: "User | None"
) -> Run:
    """Note the run in PostgreSQL, with the loss when there is one.

    Raises:
        PermissionDenied, OperationRefused: as `rebuild_gate`.
        GateUnavailable: Redis does not answer; nothing was noted.
    """
    record = selectors.activity_record(activity_id)
    if record is None:
        raise OperationRefused(f"there is no activity {activity_id}")
    report = report_gate(record)
    if report.condition == "UNREACHABLE":
        raise GateUnavailable("Redis does not answer")
    if is_postgres_older(record, report.gates):
        # Nobody has noted it yet. The run below would open the sale and sell again what was sold.
        loss.stop_for_older_postgres(
            activity_id=activity_id,
            states=report.gates,
            reason="rebuild_gate found a gate with a rebuild that PostgreSQL lost",
        )
    seen = [max(state.rebuild_run, state.rebuild_seen) for state in report.gates if state]
    with transaction.atomic(durable=True):
        run = rebuild.begin_run(
            activity_id=activity_id,
            note_loss=note_loss or report.condition == "GATE_LOST",
            forced=force,
            reason=reason,
            user=user,
            at_least=max(seen, default=0) + 1,
        )
    log.warning(
        "rebuild_began",
        activity_id=activity_id,
        run=run.number,
        loss_noted=run.loss_noted,
        forced=run.forced,
        reason=reason,
        requested_by=user.get_username() if user else "system",
    )
    faultpoint.hit("rebuild.after_note")
    return run


def preview(activity_id: int) -> Preview:
    """Look at what a run would meet; changes nothing.

    Raises:
        OperationRefused: no such sale.
        GateUnavailable: Redis does not answer.
    """
    record = selectors.activity_record(activity_id)
    if record is None:
        raise OperationRefused(f"there is no activity {activity_id}")
    condition = report_gate(record).condition
    run = Run(
        activity_id=activity_id,
        number=0,
        loss_noted=False,
        forced=False,
        sku_ids=tuple(sku.sku_id for sku in record.skus),
    )
    waiting = steps.look(run, Deadline(at=None))
    return Preview(
        name=record.name,
        status=record.status.value,
        condition=condition,
        loss_noted=record.loss_noted_at is not None,
        unfinished_run=record.rebuild_run if record.rebuild_unfinished else 0,
        pending=waiting.pending,
        open=waiting.open,
        held=waiting.held,
    )


def _follow(run: Run, progress: Progress, poll_s: float) -> Rebuilt:
    """Run the steps, one under the other."""
    deadline = steps.close(run)
    progress("CLOSED; waiting until nothing is in flight any more")
    _wait(run, deadline, progress, poll_s)
    steps.begin_rebuilding(run)
    progress("REBUILDING")
    plan, found = read_and_settle(run)
    faultpoint.hit("rebuild.after_commit")
    progress(f"{found.live_orders} live orders, stock {found.available}, held {found.held}")
    steps.write(run, plan)
    steps.finish(run)
    status = "/".join(sorted(status.value for status in steps.gate_status(run)))
    log.warning(
        "rebuild_done",
        activity_id=run.activity_id,
        run=run.number,
        status=status,
        broken=len(found.broken),
        unreadable=len(found.unreadable),
    )
    return Rebuilt(run=run, found=found, status=status)


def _wait(run: Run, deadline: Deadline, progress: Progress, poll_s: float) -> None:
    """Wait for what is in flight; scanner, sweep and release work on meanwhile."""
    told: Waiting | str | None = None
    while True:
        try:
            waiting = steps.look(run, deadline)
        except GateUnavailable as error:
            if told != str(error):
                progress(f"{error}: waiting for Redis")
            told = str(error)
        else:
            if waiting.done:
                break
            if not isinstance(told, Waiting) or _differs(told, waiting):
                progress(
                    f"{waiting.pending} unsent, {waiting.open} without an outcome"
                    f" ({waiting.held} held), {max(0.0, waiting.seconds):.0f} s until the newest"
                    " reservation that may have been lost has ended"
                )
                told = waiting
        time.sleep(poll_s)
    faultpoint.hit("rebuild.after_wait")


def _differs(one: Waiting, other: Waiting) -> bool:
    """Tell whether people should hear of it: the numbers changed, or 10 s have passed."""
    return (one.pending, one.open, one.held, one.seconds // 10) != (
        other.pending,
        other.open,
        other.held,
        other.seconds // 10,
    )

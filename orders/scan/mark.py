"""The moving mark: tells a Redis, or a PostgreSQL, that came back as an older copy.

PostgreSQL holds the number that comes next, n; Redis holds n - 1 and is moved to n each second. An
older copy of Redis is behind by two or more and stays so (the script moves by one step only); an
older PostgreSQL finds Redis ahead, by its mark or by a rebuild. Either closes the gate; so do keys
that are gone, and orders that a Redis which was started again does not know (`forgotten.py`). What
one sale shows of an older copy closes every sale on that Redis: it is one file. Nothing is rebuilt
here: `rebuild_gate` is a person's word. Any number of scanners may run: whoever finds that
PostgreSQL's number has moved on meanwhile judges nothing.
Source: docs/protocol.md, "The moving mark".
"""

from datetime import UTC, datetime
from typing import Final

import structlog

import faultpoint
from inventory import keys, rebuild, selectors, verbs
from inventory.contracts import GateState
from inventory.forgotten import forgotten_operation
from inventory.gate import gate
from inventory.gate_status import is_lost, is_postgres_older
from inventory.selectors import ActivityRecord, activity_record
from orders import metrics
from orders.rebuild import loss
from orders.scan.forgotten import SPAN_MS, ServerTimes, forgotten_order
from orders.scan.serving import serve_each

log = structlog.get_logger(__name__)


class MarkJob:
    """Looks at every served sale once a second."""

    name: Final = "mark"
    tick_s: Final = 1.0

    def run_once(self) -> int:
        """Move the marks; returns how many losses were noted.

        Raises:
            GateUnavailable: Redis cannot be reached for a sale: that alone is no loss.

        Cost: for each sale six statements, and a read for each SKU; more of both for a quarter of
        an hour after an operator changed the sale; while Redis is younger than that or the
        validity, also what `forgotten_order` costs.
        """
        times: dict[str, ServerTimes] = {}
        return serve_each(lambda activity_id: _look(activity_id, times))

    def close(self) -> None:
        """Nothing to close."""


def _look(activity_id: int, times: dict[str, ServerTimes]) -> int:
    found = _condition(activity_id)
    if found is None:
        return 0
    record, states, kind, what = found
    if not kind:
        return _move(record, states) or _ask_postgres(record, times)
    if kind == "NOTED":
        _close_again(record, states)
        return 0
    if kind == loss.POSTGRES_OLDER:
        return _stop_for_older_postgres(record, states, what)
    # Once more: the record may be older than what a rebuild has written meanwhile.
    again = _condition(activity_id)
    if again is None or again[2] != kind:
        return 0
    return _note(activity_id, kind, what)


def _condition(
    activity_id: int,
) -> tuple[ActivityRecord, list[GateState | None], str, str] | None:
    """Return the sale, its gates, and what is wrong with them ("" when nothing is)."""
    record = activity_record(activity_id)
    if record is None or record.opened_at is None:
        return None
    states = [
        gate().run(verbs.gate_state(activity_id=activity_id, sku_id=sku.sku_id))
        for sku in record.skus
    ]
    metrics.GATE_REBUILDING.labels(activity=str(activity_id)).set(int(record.rebuild_unfinished))
    # Before the losses: a gate of a newer epoch is not lost, and an older copy may have one noted.
    if is_postgres_older(record, states):
        return (
            record,
            states,
            loss.POSTGRES_OLDER,
            "the gate has seen a rebuild that PostgreSQL lost",
        )
    if record.loss_noted_at is not None:
        return record, states, "NOTED", ""
    gone = [
        str(sku.sku_id)
        for sku, state in zip(record.skus, states, strict=True)
        if is_lost(record, state)
    ]
    if gone:
        return record, states, loss.LOST, f"no gate, stock or epoch of SKU {', '.join(gone)}"
    return record, states, "", ""


def _move(record: ActivityRecord, states: list[GateState | None]) -> int:
    """Move the mark by one step and judge what it was before; returns how many losses it noted."""
    activity_id = record.activity_id
    number = rebuild.next_mark(activity_id)
    was = gate().run(verbs.move_mark(activity_id=activity_id, number=number))
    faultpoint.hit("mark.after_gate")
    if was in {number - 1, number}:  # `number`: it was moved, and PostgreSQL was not told
        rebuild.mark_moved(activity_id, number)
        return 0
    if rebuild.next_mark(activity_id) != number:
        return 0  # another scanner moved on, or a rebuild wrote the mark anew
    if was is None:
        return _note(activity_id, loss.MARK_GONE, f"the mark is gone, PostgreSQL has {number}")
    if was < number:
        return _note_copy(
            activity_id,
            f"the mark is {was}, PostgreSQL has {number}: a copy about {number - was} s old",
        )
    return _stop_for_older_postgres(
        record,
        states,
        f"the mark is {was}, PostgreSQL has {number}: it is a copy about {was - number} s old",
    )


def _ask_postgres(record: ActivityRecord, times: dict[str, ServerTimes]) -> int:
    """Compare with PostgreSQL: the mark tells no copy younger than a round."""
    server = gate().server_of(keys.mark(record.activity_id))
    if server not in times:
        times[server] = ServerTimes(*gate().server_times(server))
    reservation_id = forgotten_order(record, times[server])
    if reservation_id is not None:
        reason = f"reservation {reservation_id} has an order and is unknown at the gate"
        return _note_copy(record.activity_id, reason)
    operation_id = _forgotten_operation(record, times[server])
    if operation_id is None:
        return 0
    return _note_copy(record.activity_id, f"the gate has forgotten operation {operation_id}")


def _forgotten_operation(record: ActivityRecord, times: ServerTimes) -> str | None:
    """Ask also a server that has run for long: a replica that was promoted began long ago."""
    began_ms = times.began_ms
    if times.now_ms > began_ms + SPAN_MS:
        began_ms = times.now_ms
    since = datetime.fromtimestamp((began_ms - SPAN_MS) / 1000, tz=UTC)
    epochs = {sku.sku_id: sku.epoch for sku in record.skus}
    return forgotten_operation(activity_id=record.activity_id, epochs=epochs, since=since)


def _note(activity_id: int, kind: str, reason: str) -> int:
    noted = loss.note_loss(activity_id=activity_id, kind=kind, reason=reason)
    return int(noted is not None)


def _note_copy(activity_id: int, reason: str) -> int:
    server = gate().server_of(keys.mark(activity_id))
    others = [
        other
        for other in selectors.serving_activities()
        if gate().server_of(keys.mark(other)) == server
    ]
    return len(loss.note_older_copy(activity_id=activity_id, reason=reason, others=others))


def _stop_for_older_postgres(
    record: ActivityRecord, states: list[GateState | None], reason: str
) -> int:
    run = loss.stop_for_older_postgres(activity_id=record.activity_id, states=states, reason=reason)
    return int(run is not None)


def _close_again(record: ActivityRecord, states: list[GateState | None]) -> None:
    """The loss is noted, but the gate is not closed by its run: that process died, or Redis did."""
    run = rebuild.newest_run(record.activity_id)
    if run is None or not run.loss_noted:
        return
    if any(
        state is None or max(state.rebuild_run, state.rebuild_seen) < run.number for state in states
    ):
        code = loss.close_again(run)
        log.warning(
            "gate_closed_again", activity_id=record.activity_id, run=run.number, answer=code.name
        )

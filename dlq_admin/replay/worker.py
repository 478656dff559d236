"""The replay worker: one loop, any number of processes; a crash repeats a step, no effect."""

from collections.abc import Callable
from typing import Final

import structlog
from django.db import Error as DatabaseFailure
from django.db import close_old_connections, connection

from dlq_admin.models.replay import ReplayBatch, ReplayItem
from dlq_admin.replay import life
from dlq_admin.replay.limits import NO_PRESSURE, Pressure, room
from dlq_admin.replay.progress import progress, sent_within
from dlq_admin.replay.prove import prove
from dlq_admin.replay.send import claim, send_items
from dlq_admin.replay.settle import settle
from dlq_admin.states import BATCH_ACTIVE, ITEM_PROCESSED, BatchStatus, ItemStatus
from inventory.errors import GateUnavailable
from messaging.backpressure import Backoff
from messaging.pulse import LoopState, Pulse
from messaging.sqlstate import reason_of
from messaging.worker import Loop, StopSignal

TICK_S: Final = 0.25
_PROCESSED: Final = sorted(status.value for status in ITEM_PROCESSED)
_ACTIVE: Final = [status.value for status in BATCH_ACTIVE]

log = structlog.get_logger(__name__)


def replay_loops(
    *, pressure: Callable[[], Pressure] = lambda: NO_PRESSURE, once: bool = False
) -> list[Loop]:
    """Return the loop of a replay process.

    Args:
        pressure: what the system bears now, asked once a round.
        once: one round, then the loop ends.
    """

    def run(stop: StopSignal, pulse: Pulse) -> None:
        backoff = Backoff()
        sent = 0
        while not stop.is_set():
            pulse.touch()
            try:
                sent += run_round(pressure())
                pulse.report(LoopState.RUNNING, sent=sent)
                backoff.reset()
            except (DatabaseFailure, GateUnavailable) as error:
                connection.close()
                pulse.report(LoopState.WAITING)
                log.warning("replay_waits", reason=reason_of(error))
                stop.wait(backoff.next_s())
            if once:
                return
            stop.wait(TICK_S)

    return [Loop(name="replay", run=run)]


def run_round(pressure: Pressure = NO_PRESSURE) -> int:
    """Do one round: settle what is in flight, prove what was processed, send a second's worth.

    Returns:
        How many items were sent, compensated or discarded.

    Raises:
        django.db.Error, GateUnavailable: a store is away; the next round goes on.

    Cost: a few statements without batches; about twenty a batch and second with them.
    """
    close_old_connections()
    life.expire_due()
    settle()
    for batch in _with_processed():
        prove(batch)
    life.start_approved()
    sent = 0
    for pk in ReplayBatch.objects.filter(status__in=_ACTIVE).values_list("pk", flat=True):
        running = life.advance(pk, pressure)
        if running is not None:
            sent += _send(running, pressure)
    for pk in life.to_close():
        life.complete(pk)
    return sent


def _with_processed() -> list[ReplayBatch]:
    ids = ReplayItem.objects.filter(status__in=_PROCESSED).values("batch_id").distinct()
    return list(ReplayBatch.objects.filter(pk__in=ids).order_by("pk"))


def _send(batch: ReplayBatch, pressure: Pressure) -> int:
    """Send what the rate leaves room for."""
    per_s = life.sending_rate(batch, pressure)
    if per_s <= 0:
        return 0
    unpublished = ReplayItem.objects.filter(
        batch=batch, status=ItemStatus.SENDING, outbox_id__isnull=False
    ).count()
    free = room(
        rate_per_s=per_s,
        sent_last_second=sent_within(batch, seconds=max(1.0, 1.0 / per_s)),
        unpublished=unpublished,
    )
    if batch.status == BatchStatus.CANARY:
        counted = progress(batch.pk)
        free = min(free, batch.canary_size - counted.good - counted.in_flight - counted.processed)
    return send_items(claim(batch, limit=free)) if free > 0 else 0

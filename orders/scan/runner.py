"""Runs the scanner's jobs, each in a thread of its own with its own tick.

A store or broker that is away costs rounds, never the loop: it waits (back-off up to 5 s) and tries
again; leases and due rows are still there.
"""

import time
from collections.abc import Callable, Iterable
from typing import Final, Protocol, runtime_checkable

import structlog
from django.db import close_old_connections, connection

from inventory.errors import GateUnavailable
from messaging.backpressure import Backoff
from messaging.errors import TransientError
from messaging.pulse import LoopState, Pulse
from messaging.sqlstate import ErrorClass, classify, reason_of
from messaging.worker import Loop, StopSignal
from orders import metrics
from orders.scan.gate_ops import GateOpsJob
from orders.scan.gauges import GaugesJob
from orders.scan.held import HeldJob
from orders.scan.mark import MarkJob
from orders.scan.overdue import OverdueJob
from orders.scan.payments import PaymentsJob
from orders.scan.pending import PendingJob
from orders.scan.refunds import RefundsJob
from orders.scan.release import ReleaseJob
from orders.scan.sweep import SweepJob
from orders.scan.void import VoidJob
from orders.scan.webhooks import WebhooksJob

log = structlog.get_logger(__name__)


_TOUCH_S: Final = 5.0  # far below SECKILL_WATCHDOG_S


class Job(Protocol):
    """One scanner job."""

    @property
    def name(self) -> str:
        """Short name, as in `--job`."""
        ...

    @property
    def tick_s(self) -> float:
        """Seconds between two rounds."""
        ...

    def run_once(self) -> int:
        """Do one bounded round; returns how much it did."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


@runtime_checkable
class EagerJob(Job, Protocol):
    """A job that knows when a round took all it may: the next one begins at once."""

    @property
    def has_more(self) -> bool:
        """Whether the last round was a full one."""
        ...


JOBS: Final[dict[str, Callable[[], Job]]] = {
    PendingJob.name: PendingJob,
    SweepJob.name: SweepJob,
    OverdueJob.name: OverdueJob,
    ReleaseJob.name: ReleaseJob,
    GateOpsJob.name: GateOpsJob,
    PaymentsJob.name: PaymentsJob,
    RefundsJob.name: RefundsJob,
    WebhooksJob.name: WebhooksJob,
    VoidJob.name: VoidJob,
    MarkJob.name: MarkJob,
    HeldJob.name: HeldJob,
    GaugesJob.name: GaugesJob,
}


def loop_of(name: str) -> Loop:
    """Return the loop of a job, for the worker's shell."""

    def run(stop: StopSignal, pulse: Pulse) -> None:
        run_job(JOBS[name](), stop, pulse)

    return Loop(name=name, run=run)


def run_job(job: Job, stop: StopSignal, pulse: Pulse) -> None:
    """Run rounds until told to stop."""
    backoff = Backoff(first_s=job.tick_s)
    failing = False
    try:
        while not stop.is_set():
            pulse.touch()
            close_old_connections()
            try:
                done = job.run_once()
            except Exception as error:
                metrics.SCAN_FAILURE.labels(job=job.name).inc()
                if not failing:
                    _tell(job, error)
                failing = True
                connection.close()
                pulse.report(LoopState.WAITING, reason=reason_of(error))
                _wait(stop, pulse, backoff.next_s())
                continue
            if failing:
                log.info("scan_recovered", job=job.name)
            failing = False
            backoff.reset()
            pulse.report(LoopState.RUNNING, done=done)
            if not (isinstance(job, EagerJob) and job.has_more):
                _wait(stop, pulse, job.tick_s)
    finally:
        job.close()


def _wait(stop: StopSignal, pulse: Pulse, seconds: float) -> None:
    """Wait for the next round; the watchdog must not take a long wait for a hang."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and not stop.wait(min(left, _TOUCH_S)):
        pulse.touch()


def run_all_once(names: Iterable[str]) -> dict[str, int]:
    """Run each job once, here; returns how much each did."""
    done: dict[str, int] = {}
    for name in names:
        job = JOBS[name]()
        try:
            done[name] = job.run_once()
        finally:
            job.close()
    return done


def _tell(job: Job, error: Exception) -> None:
    if isinstance(error, (GateUnavailable, TransientError)) or classify(error) in {
        ErrorClass.TRANSIENT,
        ErrorClass.CONTENTION,
    }:
        log.warning("scan_waits", job=job.name, reason=reason_of(error))
    else:
        log.error("scan_failed", job=job.name, exc_info=error)

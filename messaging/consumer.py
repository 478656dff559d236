"""The consumer loop, on one page: take what waits, settle it, store quarantine, ack.

Receive → everything already waiting, up to 128, never a linger timer → handler (one transaction) →
commit → ack. Nothing is acked before it is committed; nothing is received that the next transaction
cannot take. See docs/messaging.md.
"""

import time
from collections.abc import Sequence
from typing import Final, Protocol, assert_never, runtime_checkable

import structlog
from django.db import close_old_connections, connection

import faultpoint
import telemetry
from messaging import metrics, pauses, pool_wait, quarantine, replays, spans
from messaging.acks import Acks
from messaging.attempt import Handler, Outage, Settled, settle
from messaging.backpressure import Backoff, QuarantineBreaker
from messaging.broker.base import ReceivedMessage, Receiver
from messaging.disposition import OTHER_GROUP, Disposition
from messaging.facts import BodyFacts
from messaging.flow_meter import FlowMeter
from messaging.inflow import CORE_REST, RECEIVE_MAX, SIDE_REST, Inflow, LoopOptions
from messaging.pace import Pace, PaceOf
from messaging.probe import Probing, stores_work
from messaging.pulse import LoopState, Pulse
from messaging.sqlstate import ErrorClass, classify, reason_of
from messaging.topology import GroupSpec
from messaging.worker import StopSignal

__all__ = ["GroupConsumer", "Handler", "KnowsFacts", "LoopOptions", "Probing", "run_loop"]

_TURN_S: Final = 0.25
_PAUSE_CHECK_S: Final = 1.0
_WRITTEN: Final = frozenset(
    {Disposition.ACK_DONE, Disposition.ACK_REJECTED, Disposition.QUARANTINE}
)

log = structlog.get_logger(__name__)


@runtime_checkable
class KnowsFacts(Protocol):
    """A handler that can find a reservation's columns when the body cannot be read."""

    def facts(self, message: ReceivedMessage) -> BodyFacts | None:
        """Return what it knows, or None."""
        ...


def run_loop(
    group: GroupSpec,
    handler: Handler,
    receiver: Receiver,
    stop: StopSignal,
    *,
    pulse: Pulse | None = None,
    options: LoopOptions | None = None,
    pace: PaceOf | None = None,
    once: bool = False,
) -> None:
    """Consume until `stop` is set; then finish what is in flight and give back what waits.

    Args:
        group: the registry's entry.
        handler: what to do with its messages.
        receiver: its connection; closed at the end.
        stop: when set, the loop returns within one transaction plus one ack.
        pulse: for heartbeat and watchdog.
        options: numbers of the loop; the settings' when None.
        pace: asked at every turn, so four times a second; as the options say when None.
        once: one receive, one batch, and return.
    """
    consumer = GroupConsumer(
        group=group,
        handler=handler,
        receiver=receiver,
        stop=stop,
        pulse=pulse or Pulse(),
        options=options or LoopOptions.from_settings(),
        pace=pace,
    )
    consumer.run_once() if once else consumer.run()


class GroupConsumer:
    """One member of a group: one thread that handles, a few that receive and ack."""

    def __init__(
        self,
        *,
        group: GroupSpec,
        handler: Handler,
        receiver: Receiver,
        stop: StopSignal,
        pulse: Pulse,
        options: LoopOptions,
        breaker: QuarantineBreaker | None = None,
        pace: PaceOf | None = None,
    ) -> None:
        self._group = group
        self._handler = handler
        self._traced = spans.TracedHandler(handler, group=group.name)
        self._receiver = receiver
        self._stop = stop
        self._pulse = pulse
        self._options = options
        self._pace_of = pace
        self._pace = Pace(batch=options.batch_max)
        self._breaker = breaker or QuarantineBreaker()
        self._backoff = Backoff()
        self._on_trial = False  # after an outage, until a message is committed
        self._meter = FlowMeter(quiet_s=options.wait_s + 1)
        self._acks = Acks(receiver, group=group.name, timeout_ms=options.ack_timeout_ms)
        self._inflow = Inflow(
            receiver,
            group=group.name,
            options=options,
            pulse=pulse,
            rest=CORE_REST if group.core else SIDE_REST,
        )
        self._pause_checked_at = 0.0
        self._paused = False
        self._unit = 0  # epoch ms since when nothing could be settled, 0 when all was

    def run(self) -> None:
        """Loop until stopped."""
        self._inflow.start()
        try:
            while not self._stop.is_set():
                self._report()
                self._keep_pace()
                try:
                    if self._is_paused():
                        self._stop.wait(_PAUSE_CHECK_S)
                        continue
                    self._inflow.resume()
                    batch = self._inflow.take(timeout_s=_TURN_S)
                    if batch:
                        self.work(batch)
                    elif self._pace.spare or (self._pace.batch and not self._inflow.failing):
                        self._meter.idle()
                        self._unit = 0
                except Outage as outage:
                    self._wait_out(outage)
        finally:
            self._close()

    def run_once(self) -> None:
        """Receive once, handle what came, ack."""
        try:
            if not self._is_paused():
                batch = self._receiver.receive(
                    max_messages=min(RECEIVE_MAX, self._options.batch_max),
                    invisible_s=self._options.invisible_s,
                    wait_s=self._options.wait_s,
                )
                if batch:
                    self.work(batch)
        finally:
            self._close()

    def work(self, batch: Sequence[ReceivedMessage]) -> None:
        """Settle a batch: commit, then quarantine rows, then ack.

        Raises:
            Outage: a store is away; what was not settled is left un-acked.
        """
        faultpoint.hit("consumer.after_receive")
        self._meter.took(batch)
        batch = self._in_time(self._meant_for_us(batch))
        metrics.INFLIGHT.labels(self._group.name).inc(len(batch))
        started = time.monotonic()
        if not self._unit:
            self._unit = time.time_ns() // 1_000_000
            self._pulse.report(unit=self._unit)  # now: this thread may hang until the next turn
        close_old_connections()
        waited_s = pool_wait.acquire("consumer")
        metrics.POOL_ACQUIRED.labels("consumer").inc()
        try:
            for settled in (
                settle(batch, handler=self._traced, max_retries=self._group.max_retries)
                if batch
                else ()
            ):
                self._finish(settled, started)
                self._end_trial(settled)
                if self._paused:
                    return  # the breaker tripped: the rest comes back, for whoever resumes
            if not self._on_trial:
                self._backoff.reset()
            self._unit = 0
        finally:
            close_old_connections()
            metrics.POOL_ACQUIRED.labels("consumer").dec()
            metrics.INFLIGHT.labels(self._group.name).dec(len(batch))
            seconds = time.monotonic() - started
            self._inflow.worked(seconds)
            self._meter.worked(
                messages=len(batch),
                batch_max=self._options.batch_max,
                seconds=seconds - waited_s,
                waited_s=waited_s,
            )
            metrics.CONSUME_SECONDS.labels(self._group.topic).observe(seconds)
            metrics.CONSUME_BATCH.labels(self._group.topic).observe(len(batch))

    def _meant_for_us(self, batch: Sequence[ReceivedMessage]) -> Sequence[ReceivedMessage]:
        """Ack and count replays that are meant for another group of the topic."""
        others = [m for m in batch if replays.is_for_another(m, group=self._group.name)]
        if not others:
            return batch
        metrics.REPLAY_SKIPPED.labels(self._group.name).inc(len(others))
        done = [Settled(message=message, decision=OTHER_GROUP) for message in others]
        self._acks.submit(done, left=(), tx_latency_ms=0.0)
        return [message for message in batch if message not in others]

    def _in_time(self, batch: Sequence[ReceivedMessage]) -> list[ReceivedMessage]:
        """Leave what might come again before its commit, unless this is its last delivery."""
        begin_until = time.monotonic() + self._options.min_left_s
        fresh = [
            message
            for message in batch
            if message.invisible_until >= begin_until
            or message.delivery_attempt > self._group.max_retries
        ]
        if len(fresh) < len(batch):
            metrics.LEFT.labels(self._group.name, "late").inc(len(batch) - len(fresh))
        return fresh

    def _finish(self, settled: list[Settled], started: float) -> None:
        """Quarantine rows first, then acks of all that is durable; count and log."""
        latency_ms = (time.monotonic() - started) * 1000
        faultpoint.hit("consumer.after_commit")
        if telemetry.enabled():
            spans.settled(settled, group=self._group.name, seconds=latency_ms / 1000)
        done, left, poison = self._sort(settled)
        outage: Outage | None = None
        if poison:
            try:
                self._store(poison)
                done += poison
            except Exception as error:
                left += poison  # never acked without its row
                log.error("quarantine_not_stored", messages=len(poison), reason=reason_of(error))
                if classify(error) in (ErrorClass.TRANSIENT, ErrorClass.CONTENTION):
                    outage = Outage(reason_of(error))
        self._meter.settled(len(done))
        self._acks.submit(done, left=left, tx_latency_ms=latency_ms)
        self._watch_quarantine(settled)
        if outage:
            raise outage

    def _sort(self, settled: list[Settled]) -> tuple[list[Settled], list[Settled], list[Settled]]:
        """Split into done, left for redelivery, and poison; count each."""
        done: list[Settled] = []
        left: list[Settled] = []
        poison: list[Settled] = []
        for item in settled:
            disposition = item.decision.disposition
            metrics.CONSUME.labels(self._group.topic, disposition.value).inc()
            match disposition:
                case Disposition.ACK_DONE:
                    done.append(item)
                case Disposition.ACK_DUPLICATE:
                    metrics.DUPLICATE.labels(self._group.name).inc()
                    done.append(item)
                case Disposition.ACK_REJECTED:
                    metrics.BUSINESS_REJECT.labels(item.decision.reason).inc()
                    done.append(item)
                case Disposition.RETRY:
                    left.append(item)
                case Disposition.QUARANTINE:
                    metrics.QUARANTINED.labels(self._group.name, item.decision.reason).inc()
                    poison.append(item)
                case _:
                    assert_never(disposition)
        return done, left, poison

    def _store(self, poison: Sequence[Settled]) -> None:
        """Commit the quarantine rows of messages that nobody can handle."""
        quarantine.store(
            [
                quarantine.entry_of(
                    item.message,
                    group=self._group.name,
                    reason=item.decision.reason,
                    error=item.decision.detail,
                    facts=self._facts(item.message),
                )
                for item in poison
            ]
        )

    def _facts(self, message: ReceivedMessage) -> BodyFacts | None:
        if not isinstance(self._handler, KnowsFacts):
            return None
        try:
            return self._handler.facts(message)
        except Exception as error:
            log.warning("facts_not_found", message_id=message.message_id, reason=reason_of(error))
            return None

    def _watch_quarantine(self, settled: Sequence[Settled]) -> None:
        """Pause the group when quarantine becomes the rule."""
        for item in settled:
            if item.decision.disposition is Disposition.RETRY:
                continue  # it comes again: neither success nor poison yet
            poison = item.decision.disposition is Disposition.QUARANTINE
            if self._breaker.saw(quarantined=poison) and not self._paused:
                reason = f"QUARANTINE_BREAKER: {item.decision.reason}"
                try:
                    pauses.pause_by_breaker(group=self._group.name, reason=reason)
                except Exception as error:
                    raise Outage(reason_of(error)) from error
                self._paused = True
                self._pause_checked_at = 0.0

    def _is_paused(self) -> bool:
        """Look once a second; hold the inflow while paused, forget the breaker's count after."""
        now = time.monotonic()
        if now - self._pause_checked_at < _PAUSE_CHECK_S:
            return self._paused
        before = self._paused
        close_old_connections()
        try:
            self._paused = pauses.is_paused(self._group.name)
        except Exception as error:
            raise Outage(reason_of(error)) from error
        self._pause_checked_at = now
        if self._paused:
            self._inflow.hold("paused")
            self._pulse.report(LoopState.PAUSED)
        elif before:
            self._breaker.reset()
            log.info("group_goes_on", consumer_group=self._group.name)
        return self._paused

    def _keep_pace(self) -> None:
        """Take as much as whoever governs says; on trial one message, which alone pays."""
        if self._pace_of is not None:
            self._pace = self._pace_of()
        self._inflow.limit(min(self._pace.batch, 1) if self._on_trial else self._pace.batch)

    def _end_trial(self, settled: Sequence[Settled]) -> None:
        """Take the normal size again once something was written and committed."""
        if self._on_trial and any(item.decision.disposition in _WRITTEN for item in settled):
            self._on_trial = False
            self._keep_pace()

    def _wait_out(self, outage: Outage) -> None:
        """Receive nothing until every store does its work again, then one message at a time."""
        self._on_trial = True
        self._inflow.hold("outage")
        connection.close()  # whatever broke it: the next unit starts on a new one
        self._pulse.report(LoopState.WAITING)
        metrics.OUTAGE.labels(self._group.name).inc()
        log.warning("consumer_waits", consumer_group=self._group.name, reason=str(outage))
        while not self._stop.wait(self._backoff.next_s()):
            self._report(LoopState.WAITING)
            if stores_work(self._handler):
                log.info("consumer_goes_on", consumer_group=self._group.name)
                return

    def _report(self, state: LoopState | None = None) -> None:
        self._pulse.touch()
        state = state or (LoopState.PAUSED if self._paused else LoopState.RUNNING)
        times = self._meter.times()
        self._pulse.report(
            state,
            lag_s=round(self._meter.lag_s, 3),
            drain_per_s=round(self._meter.drain_per_s, 1),
            batch=self._pace.batch,
            unit=self._unit,
            busy_per_s=round(times.busy_per_s, 1),
            tx_p95_ms=round(times.p95_ms, 1),
            tx_p99_ms=round(times.p99_ms, 1),
            pool_wait_p95_ms=round(times.pool_wait_p95_ms, 2),
            receiving=not self._inflow.failing,
        )
        metrics.LAG_SECONDS.labels(self._group.name).set(self._meter.lag_s)
        metrics.PAUSED.labels(self._group.name).set(self._paused)

    def _close(self) -> None:
        self._inflow.close()
        self._acks.close()
        self._receiver.close()
        self._inflow.join(timeout_s=1.0)

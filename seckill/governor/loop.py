"""The governor's loop: once a second look, decide, publish; one leader, others stand by.

A governor that dies is followed by another when its lead runs out; until then, and when none comes,
its last decision ends by itself and everybody is careful (`view.stale_view`).
"""

import os
import secrets
import socket
import time
from dataclasses import replace
from typing import Final

import structlog
from django.conf import settings

import faultpoint
from inventory.errors import GateUnavailable
from inventory.gate import gate
from messaging.pulse import LoopState, Pulse
from messaging.topology import CG_INVENTORY_COMPENSATE, CG_ORDER_CREATE, enabled_groups
from messaging.worker import Loop, StopSignal
from seckill.governor import metrics, store
from seckill.governor.decide import decide
from seckill.governor.history import Decided
from seckill.governor.memory import Means, Memory
from seckill.governor.sampler import Sampler
from seckill.governor.signals import Limits
from seckill.governor.view import GovernorView, encode

TICK_S: Final = 1.0
_LEAD_MS: Final = 3_000
_STORE_EVERY_S: Final = 60.0

log = structlog.get_logger(__name__)


def governor_loop(*, once: bool = False) -> Loop:
    """Return the loop, for the worker's shell."""

    def run(stop: StopSignal, pulse: Pulse) -> None:
        Governor().run(stop, pulse, once=once)

    return Loop(name="governor", run=run)


def means_of_settings() -> Means:
    """Return the fixed numbers."""
    return Means(
        groups=tuple((group.name, group.core) for group in enabled_groups()),
        order_group=CG_ORDER_CREATE,
        compensate_group=CG_INVENTORY_COMPENSATE,
        safe_transactions=settings.SECKILL_SAFE_TRANSACTIONS,
        workers=settings.SECKILL_CONSUMER_WORKERS,
        workers_max=settings.SECKILL_CONSUMER_WORKERS_MAX,
        batch_max=settings.SECKILL_BATCH_MAX,
        entry_rate=settings.SECKILL_ENTRY_RATE,
        unknown_rate=settings.SECKILL_GOVERNOR_STALE_RATE,
        drain_per_s=settings.SECKILL_DRAIN_RATE,
        slo_s=settings.SECKILL_ORDER_SLO_S,
        max_pending=settings.SECKILL_MAX_PENDING,
    )


class Governor:
    """One candidate.

    Args:
        sampler: its senses; tests put their own in.
    """

    def __init__(self, sampler: Sampler | None = None) -> None:
        self.name = f"{socket.gethostname()[:40]}:{os.getpid()}:{secrets.token_hex(4)}"
        self._sampler = sampler or Sampler()
        self._means = means_of_settings()
        self._limits = Limits(wal_per_s=float(settings.SECKILL_WAL_LIMIT))
        self._memory = Memory()
        self._last: GovernorView | None = None
        self._stored_s = float("-inf")
        self._leads = False

    def run(self, stop: StopSignal, pulse: Pulse, *, once: bool = False) -> None:
        """Govern until stopped."""
        self._sampler.start()
        try:
            while not stop.is_set():
                pulse.touch()
                began = time.monotonic()
                self.turn(pulse)
                if once:
                    return
                stop.wait(max(0.05, TICK_S - (time.monotonic() - began)))
        finally:
            self._resign()
            self._sampler.stop()

    def turn(self, pulse: Pulse) -> None:
        """Do one second's work; Redis that is away costs the turn."""
        try:
            leads = self._lead()
        except GateUnavailable as error:
            self._note_lead(leads=False)
            pulse.report(LoopState.WAITING, reason=str(error))
            return
        self._note_lead(leads=leads)
        if not leads:
            pulse.report(LoopState.RUNNING, leads=False)
            return
        faultpoint.hit("governor.before_publish")
        view = self.decide_once()
        try:
            gate().run(
                store.publish(decision=encode(view), ttl_ms=settings.SECKILL_GOVERNOR_TTL_MS)
            )
        except GateUnavailable as error:
            pulse.report(LoopState.WAITING, reason=str(error))
            return
        faultpoint.hit("governor.after_publish")
        self._tell(view)
        pulse.report(
            LoopState.RUNNING,
            leads=True,
            level=view.level.value,
            entry_rate=view.entry_rate,
            reasons=list(view.reasons[:3]),
        )

    def decide_once(self) -> GovernorView:
        """Look and decide; the memory is that of the last call."""
        signals = self._sampler.look()
        view, self._memory = decide(
            signals,
            self._memory,
            means=self._means,
            now_s=time.monotonic(),
            limits=self._limits,
        )
        metrics.observe(signals, view)
        now_ms = self._sampler.redis_now_ms or time.time_ns() // 1_000_000
        return replace(view, decided_at_ms=now_ms)

    def _lead(self) -> bool:
        leader = gate().run(store.leader())
        if leader == self.name:
            return gate().run(store.keep_lead(name=self.name, ttl_ms=_LEAD_MS))
        if leader:
            return False
        return gate().run(store.take_lead(name=self.name, ttl_ms=_LEAD_MS))

    def _note_lead(self, *, leads: bool) -> None:
        if leads is not self._leads:
            log.info("governor_leads" if leads else "governor_stands_by", name=self.name)
            if leads:
                self._memory, self._last = Memory(), None
        self._leads = leads
        metrics.note_lead(leads=leads)

    def _tell(self, view: GovernorView) -> None:
        """Log a change of level, store whatever changed, and a row a minute when nothing did."""
        before, self._last = self._last, view
        level_before = before.level if before else view.level
        if before is None or before.level is not view.level:
            metrics.CHANGES.labels(level_before.value, view.level.value).inc()
            log.warning(
                "governor_level",
                before=level_before.value,
                after=view.level.value,
                entry_rate=view.entry_rate,
                reasons=list(view.reasons),
                signals=view.signals,
            )
        now = time.monotonic()
        if before is None or _differs(before, view) or now - self._stored_s >= _STORE_EVERY_S:
            self._stored_s = now
            self._sampler.write(Decided(view=view, before=level_before.value, leader=self.name))

    def _resign(self) -> None:
        """Let another govern at once."""
        if not self._leads:
            return
        try:
            if gate().run(store.leader()) == self.name:
                gate().run(store.give_up())
        except GateUnavailable as error:
            log.info("governor_lead_not_given_up", error=str(error))
        self._leads = False
        metrics.note_lead(leads=False)


def _differs(before: GovernorView, after: GovernorView) -> bool:
    """Tell whether anybody has to act differently: the numbers it was made from do not count."""
    return (
        before.level is not after.level
        or before.groups != after.groups
        or before.busy_activities != after.busy_activities
        or (before.max_open, before.max_pending) != (after.max_open, after.max_pending)
        or abs(before.entry_rate - after.entry_rate) > 0.02 * max(before.entry_rate, 1.0)
    )

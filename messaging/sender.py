"""The sender's loops: one or more threads a lane, and one that keeps the gauges.

A full claim loops at once. After any other, 100 ms of rows gather: a claim and a send cost much the
same for one row as for many; empty claims double that to 250 ms. Orders first: the lane of timeouts
waits while the order group lags over a second, the lane of events while a rush makes many of them,
for a while.
"""

import time
from typing import Final

import structlog
from django.conf import settings
from django.db import Error as DatabaseFailure
from django.db import connection

from messaging import metrics, outbox_rows, partitions, selectors
from messaging.backpressure import Backoff, IdleWait, timeouts_must_wait
from messaging.broker.base import Broker
from messaging.broker_metrics import keep_backlogs
from messaging.outbox import LANE_COMPENSATE, LANE_EVENTS, LANE_TIMEOUTS
from messaging.pulse import LoopState, Pulse
from messaging.relay import Relay
from messaging.sqlstate import reason_of
from messaging.topology import CG_ORDER_CREATE
from messaging.worker import Loop, StopSignal

_LIMIT: Final = {LANE_COMPENSATE: 512, LANE_EVENTS: 512, LANE_TIMEOUTS: 256}
_THREADS: Final = (
    ("compensate", LANE_COMPENSATE),
    ("events", LANE_EVENTS),
    ("events-2", LANE_EVENTS),
    ("timeouts", LANE_TIMEOUTS),
)
_LAG_CHECK_S: Final = 0.25
_GATHER_MAX_S: Final = 1.0
_SLACK: Final = 4  # a rush is over below this part of the rate that made it one
_GAUGES_S: Final = 5.0

log = structlog.get_logger(__name__)


def sender_loops(broker: Broker, stop: StopSignal, *, once: bool = False) -> list[Loop]:
    """Return the loops of a sender process.

    Args:
        broker: gives the one producer that all of them share.
        stop: the process's stop signal.
        once: each lane runs one round and ends.
    """
    relay = Relay(
        broker.producer(),
        lease_s=settings.SECKILL_OUTBOX_LEASE_S,
        timeout_ms=settings.SECKILL_PUBLISH_TIMEOUT_MS,
        stopping=stop.is_set,
    )
    loops = [
        Loop(name=name, run=LaneLoop(relay, lane=lane, once=once).run) for name, lane in _THREADS
    ]
    if once:
        return loops
    more = (Loop(name="gauges", run=keep_gauges), Loop(name="broker-gauges", run=keep_backlogs))
    return [*loops, *more]


class LaneLoop:
    """Rounds of one lane until stopped."""

    def __init__(self, relay: Relay, *, lane: int, once: bool = False) -> None:
        self._relay = relay
        self._lane = lane
        self._once = once
        self._idle = IdleWait()
        self._backoff = Backoff()
        self._found = 0  # rows of the last claim
        self._in_rush = False
        self._lag_read_at = 0.0
        self._lag = selectors.GroupLag(members=0, lag_s=0.0, drain_per_s=0.0)

    def run(self, stop: StopSignal, pulse: Pulse) -> None:
        """Loop until stopped. A database that is away is waited for; nothing is lost meanwhile."""
        sent = 0
        while not stop.is_set():
            pulse.touch()
            try:
                if self._must_wait():
                    pulse.report(LoopState.WAITING, lane=self._lane, claimed=sent)
                    stop.wait(_LAG_CHECK_S)
                    continue
                claimed = self._relay.run_round(lane=self._lane, limit=_LIMIT[self._lane])
                self._found = claimed
                sent += claimed
                self._backoff.reset()
                pulse.report(LoopState.RUNNING, lane=self._lane, claimed=sent)
                if self._once:
                    return
                idle_s = self._idle.after(claimed=claimed, limit=_LIMIT[self._lane])
                stop.wait(max(idle_s, self._gather_s()) if claimed and idle_s else idle_s)
            except DatabaseFailure as error:
                connection.close()
                pulse.report(LoopState.WAITING, lane=self._lane)
                log.warning("sender_waits", lane=self._lane, reason=reason_of(error))
                stop.wait(self._backoff.next_s())

    def _must_wait(self) -> bool:
        """Tell whether this lane lets the order group go first."""
        if self._once:
            return False
        if self._lane == LANE_EVENTS:
            return self._rush_holds()
        if self._lane == LANE_TIMEOUTS:
            orders = self._order_lag()
            return timeouts_must_wait(order_members=orders.members, order_lag_s=orders.lag_s)
        return False

    def _rush_holds(self) -> bool:
        """Tell whether events wait: one costs sender, broker, groups and database an order's time.

        A rush that slackens is not over: thousands of events would meet the orders still to come.
        Nor does it end because some have waited long enough: these go, the others wait on.
        """
        wait_s = settings.SECKILL_EVENT_WAIT_S
        if not self._found or wait_s <= 0:  # an idle lane asks nothing more than its claim
            self._in_rush = False
            return False
        per_s = max(1, settings.SECKILL_RUSH_RATE // (_SLACK if self._in_rush else 1))
        flow = outbox_rows.lane_flow(lane=LANE_EVENTS, most=per_s)
        self._in_rush = flow.fresh >= per_s
        return self._in_rush and flow.oldest_s < wait_s

    def _gather_s(self) -> float:
        """How long rows gather: while orders are behind, their events may be as far behind."""
        orders = self._order_lag()
        return min(orders.lag_s, _GATHER_MAX_S) if orders.members and not self._once else 0.0

    def _order_lag(self) -> selectors.GroupLag:
        """Return the order group's lag; asks four times a second at most."""
        now = time.monotonic()
        if now - self._lag_read_at >= _LAG_CHECK_S:
            self._lag_read_at = now
            self._lag = selectors.group_lag(CG_ORDER_CREATE)
        return self._lag


def keep_gauges(stop: StopSignal, pulse: Pulse) -> None:
    """Publish what lies in outbox, quarantine and DEFAULT partitions, every 5 s."""
    while not stop.is_set():
        pulse.touch()
        try:
            _read_gauges()
        except DatabaseFailure as error:
            connection.close()
            log.warning("gauges_not_read", reason=reason_of(error))
        stop.wait(_GAUGES_S)


def _read_gauges() -> None:
    for lane in selectors.outbox_backlog():
        metrics.OUTBOX_DUE.labels(lane.lane).set(lane.rows)
        metrics.OUTBOX_OLDEST.labels(lane.lane).set(lane.oldest_s)
    metrics.QUARANTINE_OPEN.clear()
    metrics.QUARANTINE_OLDEST.clear()
    for group in selectors.open_quarantine():
        metrics.QUARANTINE_OPEN.labels(group.group).set(group.rows)
        metrics.QUARANTINE_OLDEST.labels(group.group).set(group.oldest_s)
    metrics.PARTITION_DAYS_LEFT.set(partitions.days_left())
    for table, size in partitions.table_bytes().items():
        metrics.TABLE_BYTES.labels(table).set(size)
    for table, rows in partitions.default_rows().items():
        metrics.DEFAULT_ROWS.labels(table).set(rows)

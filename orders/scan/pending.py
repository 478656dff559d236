"""Reservations that the broker is not known to have: claimed under a lease, sent again, marked.

A reservation whose send is uncertain stays MQ_PENDING with a due time. This job claims what is due
(fenced by its own name), sends the same bytes, and marks what the broker confirmed. Whatever else
came back is tried again later: an earlier attempt may have been stored, so nothing is released.
"""

import os
import random
import socket
from collections.abc import Sequence
from typing import Final

import structlog
from django.conf import settings
from ulid import ULID

import faultpoint
from inventory import verbs
from inventory.contracts import Reservation
from inventory.gate import gate
from messaging.broker.base import SendOutcome
from orders import metrics
from orders.scan.resend import Resender
from orders.scan.serving import serve_each

log = structlog.get_logger(__name__)

FIRST_DELAY_MS: Final = 1_000
MAX_DELAY_MS: Final = 10_000
PROBE: Final = 8  # how many are claimed while the broker is in trouble …
GOOD_ROUNDS: Final = 3  # … until so many rounds in a row were confirmed
STATS_EVERY: Final = 10  # rounds between two looks at the backlog


class PendingJob:
    """One scanner of pending reservations; any number of them may run."""

    name: Final = "pending"

    def __init__(self, *, resender: Resender | None = None) -> None:
        self.tick_s = settings.SECKILL_SCAN_TICK_MS / 1000
        self.owner = f"scan:{socket.gethostname()}:{os.getpid()}:{ULID()}"
        self._resender = resender or Resender()
        self._bad = False
        self._good_rounds = 0
        self._rounds = 0

    def run_once(self) -> int:
        """Serve every sale once; returns how many messages the broker confirmed.

        Raises:
            GateUnavailable: Redis cannot be reached for a sale; leases run out by themselves.

        Cost: for each sale with something due three Lua calls and one RPC per 64 messages.
        """
        observed = self._rounds % STATS_EVERY == 0
        self._rounds += 1

        def serve(activity_id: int) -> int:
            confirmed = self._serve(activity_id)
            if observed:
                _observe(activity_id)
            return confirmed

        return serve_each(serve)

    def close(self) -> None:
        """Finish what is in flight and close the producer."""
        self._resender.close()

    def _serve(self, activity_id: int) -> int:
        limit = PROBE if self._bad else settings.SECKILL_SCAN_BATCH
        due = gate().run(verbs.due_ids(activity_id=activity_id, limit=limit))
        if not due:
            return 0
        claimed = gate().run(
            verbs.claim_due(
                activity_id=activity_id,
                reservation_ids=due,
                lease_owner=self.owner,
                lease_ms=settings.SECKILL_SCAN_LEASE_MS,
            )
        )
        if claimed.dropped:
            metrics.SWEEP.labels(result="dropped").inc(claimed.dropped)
        if not claimed.reservations:
            return 0
        faultpoint.hit("scanner.after_claim")
        return self._send(activity_id, claimed.reservations)

    def _send(self, activity_id: int, reservations: Sequence[Reservation]) -> int:
        results = self._resender.send(reservations)
        faultpoint.hit("scanner.after_send")
        stored = [r for r, result in results if result.outcome is SendOutcome.CONFIRMED]
        again = [r for r, result in results if result.outcome is not SendOutcome.CONFIRMED]
        if stored:
            gate().run(
                verbs.mark_sent(
                    activity_id=activity_id,
                    reservation_ids=[r.reservation_id for r in stored],
                    lease_owner=self.owner,
                )
            )
        if again:
            gate().run(
                verbs.reschedule(
                    activity_id=activity_id,
                    items=[(r.reservation_id, delay_ms(r.send_attempt)) for r in again],
                    lease_owner=self.owner,
                )
            )
        self._judge_broker(ok=not again)
        return len(stored)

    def _judge_broker(self, *, ok: bool) -> None:
        """One failure makes the job careful; it takes several good rounds to trust again."""
        self._good_rounds = self._good_rounds + 1 if ok else 0
        bad = not ok or (self._bad and self._good_rounds < GOOD_ROUNDS)
        if bad is not self._bad:
            log.warning("resend_careful" if bad else "resend_normal")
        self._bad = bad


def delay_ms(send_attempt: int) -> int:
    """Return the next attempt's delay: 1 s doubling to 10 s, ± 20 %."""
    delay = min(FIRST_DELAY_MS * 2 ** min(max(send_attempt - 1, 0), 10), MAX_DELAY_MS)
    return int(delay * random.uniform(0.8, 1.2))  # noqa: S311


def _observe(activity_id: int) -> None:
    stats = gate().run(verbs.pending_stats(activity_id=activity_id))
    label = str(activity_id)
    metrics.MQ_PENDING.labels(activity=label).set(stats.pending)
    metrics.OPEN.labels(activity=label).set(stats.open)
    overdue_ms = stats.redis_now_ms - stats.oldest_due_ms if stats.oldest_due_ms else 0
    metrics.MQ_PENDING_OLDEST.labels(activity=label).set(max(0, overdue_ms) / 1000)

"""Closed loop: every connection sends its next request as soon as it is answered."""

import asyncio
import time

from bench.loadgen.http1 import Connection, Response
from bench.loadgen.plan import Plan
from bench.loadgen.requests import RequestBuilder
from bench.loadgen.tally import Tally


class ClosedLoop:
    """Sends prepared requests one after the other; see `Driver`."""

    def __init__(self, plan: Plan, builder: RequestBuilder) -> None:
        self._plan = plan
        self.tally = Tally()
        self.finished = asyncio.Event()
        self.stopped = False
        self.sent = 0
        self.first_sent_epoch_s = 0.0
        self.last_answer_ns = 0
        self._next = 0
        self._open = 0
        # Holders have negative numbers, so that a ticket tells them apart.
        requests = [(builder.whole(user), user) for user in range(plan.users)]
        if plan.holder_every:
            holders = [(builder.whole(-1 - n), -1 - n) for n in range(plan.holders)]
            for place in range(0, len(requests), plan.holder_every):
                requests[place] = holders[(place // plan.holder_every) % len(holders)]
        self._requests = requests
        self._limit = plan.limit or (0 if plan.cycle else len(requests))

    def restart_counts(self) -> Tally:
        """Forget what the warm-up counted; return it."""
        warm, self.tally = self.tally, Tally()
        return warm

    def stop(self) -> None:
        """Send nothing any more."""
        self.stopped = True
        self._maybe_finished()

    def idle(self, connection: Connection) -> None:
        """Send the next request."""
        if self.stopped or (self._limit and self.sent >= self._limit):
            self.stopped = True
            self._maybe_finished()
            return
        request, connection.ticket = self._requests[self._next]
        self._next += 1
        if self._next == len(self._requests):
            self._next = 0
        if not self.sent:
            self.first_sent_epoch_s = time.time()
        self.sent += 1
        self._open += 1
        connection.send(request)

    def answered(self, connection: Connection, response: Response, data: bytes) -> None:
        """Count an answer and go on."""
        now = time.perf_counter_ns()
        self.last_answer_ns = now
        self._open -= 1
        tally = self.tally
        tally.answers += 1
        tally.histogram.add((now - connection.sent_ns) // 1000)
        user: int = connection.ticket  # type: ignore[assignment]
        if user < 0:
            tally.holder_requests += 1
        if response.status == 202:
            tally.accepted(response, data, user)
        else:
            tally.refused(response, data)
        self.idle(connection)

    def failed(self, ticket: object, reason: str) -> None:
        """Count a request that got no answer."""
        self._open -= 1
        self.tally.error(reason)
        self._maybe_finished()

    def _maybe_finished(self) -> None:
        if self.stopped and not self._open:
            self.finished.set()

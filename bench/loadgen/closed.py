"""Closed loop: every connection sends its next request as soon as it is answered."""

import asyncio
import time

from bench.loadgen.http1 import Connection, Response, retry_after_s
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
        self._waiting: list[Connection] = []
        self._later = 0
        self._again: list[int] = []
        # Place → when a buyer first asked, of those who have to come again: nobody else pays.
        self._first_sent_ns: dict[int, int] = {}

    @property
    def unanswered(self) -> int:
        """Buyers who asked and have no final answer: on the way, or still to come again."""
        return self._open + self._later + len(self._again)

    def restart_counts(self) -> Tally:
        """Forget what the warm-up counted; return it."""
        warm, self.tally = self.tally, Tally()
        return warm

    def stop(self) -> None:
        """Send nothing any more."""
        self.stopped = True
        self._maybe_finished()

    def idle(self, connection: Connection) -> None:
        """Send the next request, or who has to come again."""
        if self.stopped:
            self._maybe_finished()
        elif self._again:
            self._send(connection, self._again.pop())
        elif not self._limit or self.sent < self._limit:
            place = self._next
            self._next = place + 1 if place + 1 < len(self._requests) else 0
            self.sent += 1
            self._send(connection, place)
        else:
            self._waiting.append(connection)
            self._maybe_finished()

    def answered(self, connection: Connection, response: Response, data: bytes) -> None:
        """Count an answer and go on; its time is the buyer's, from his first try to the last."""
        now = time.perf_counter_ns()
        self.last_answer_ns = now
        self._open -= 1
        tally = self.tally
        tally.answers += 1
        place: int = connection.ticket  # type: ignore[assignment]
        user = self._requests[place][1]
        code = ""
        if response.status == 202:
            tally.accepted(response, data, user)
        else:
            code = tally.refused(response, data)
        if user < 0:
            tally.holder(response, code)
        if self._plan.retry and response.status in (429, 503):
            self._first_sent_ns.setdefault(place, connection.sent_ns)
            self._come_again(place, retry_after_s(data, response.body_start))
        else:
            sent_ns = connection.sent_ns
            if self._first_sent_ns:
                sent_ns = self._first_sent_ns.pop(place, sent_ns)
            tally.histogram.add((now - sent_ns) // 1000)
        self.idle(connection)

    def failed(self, connection: Connection, reason: str) -> None:
        """Count a request that got no answer."""
        self._open -= 1
        self.tally.error(reason)
        place = connection.ticket
        if self._plan.retry and isinstance(place, int):
            self._first_sent_ns.setdefault(place, connection.sent_ns)
            self._come_again(place, 0)
        self._maybe_finished()

    def _send(self, connection: Connection, place: int) -> None:
        if not self.first_sent_epoch_s:
            self.first_sent_epoch_s = time.time()
        connection.ticket = place
        self._open += 1
        connection.send(self._requests[place][0])

    def _come_again(self, place: int, after_s: float) -> None:
        self._later += 1
        asyncio.get_running_loop().call_later(max(after_s, 0.1), self._came_again, place)

    def _came_again(self, place: int) -> None:
        self._later -= 1
        self._again.append(place)
        while self._waiting:
            connection = self._waiting.pop()
            if connection.usable:
                self.idle(connection)
                return

    def _maybe_finished(self) -> None:
        exhausted = self._limit and self.sent >= self._limit and not (self._later or self._again)
        if not self._open and (self.stopped or exhausted):
            self.stopped = True
            self.finished.set()

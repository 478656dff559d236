"""A crowd: buyers with habits, who come by a clock of their own, not by the server's.

Latency counts from the moment a click was first due to its final answer, so a server can hide
behind neither its queue nor a 503.
"""

import asyncio
import heapq
import itertools
import random
import time
from collections import deque
from enum import Enum
from typing import Final

from bench.loadgen.http1 import Connection, Response, retry_after_s
from bench.loadgen.plan import Plan
from bench.loadgen.requests import RequestBuilder
from bench.loadgen.tally import Tally

_TICK_S: Final = 0.002


class Habit(Enum):
    """How a buyer behaves."""

    ORDINARY = 0
    CLICKER = 1  # many clicks within a second, each with a key of its own
    KEY_REUSER = 2  # the same click three times, with the same key


class Buyer:
    """One buyer of the crowd."""

    __slots__ = ("clicks", "habit", "has", "number", "patient")

    def __init__(self, *, number: int, habit: Habit, patient: bool) -> None:
        self.number = number
        self.habit = habit
        self.patient = patient  # tries again after 503
        self.clicks = 0
        self.has = b""  # reservation id


class Click:
    """One request of a buyer: due at a time, perhaps once more later with the same key."""

    __slots__ = ("buyer", "due_ns", "key", "tries")

    def __init__(self, *, buyer: Buyer, key: str, due_ns: int) -> None:
        self.buyer = buyer
        self.key = key
        self.due_ns = due_ns  # first
        self.tries = 0


class Crowd:
    """Drives the buyers; see `Driver`."""

    def __init__(self, plan: Plan, builder: RequestBuilder) -> None:
        self._plan = plan
        self._builder = builder
        self._random = random.Random(plan.seed)
        self._order = itertools.count()
        self._due: list[tuple[int, int, Click]] = []
        self._ready: deque[Click] = deque()
        self._idle: deque[Connection] = deque()
        self.unanswered = 0  # how a crowd's buyers end is their habit: they give up, or go home
        self.tally = Tally()
        self.finished = asyncio.Event()
        self.stopped = False
        self.sent = 0
        self.first_sent_epoch_s = 0.0
        self.last_answer_ns = 0
        self._buyers = [self._make_buyer(number) for number in range(plan.users)]

    def arrive(self) -> None:
        """Put everyone's first click on the clock: the rush within the first fifth of the time."""
        start = time.perf_counter_ns()
        span_ns = self._plan.arrival_s * 1e9
        for buyer in self._buyers:
            place = self._random.random()
            if self._random.random() < self._plan.rush:
                place *= 0.2
            at = start + int(span_ns * place)
            if buyer.habit is Habit.CLICKER:
                for n in range(self._random.randint(4, 8)):
                    self._click(buyer, at + int(n * self._random.uniform(20, 150) * 1e6))
            elif buyer.habit is Habit.KEY_REUSER:
                key = self._click(buyer, at)
                for n in (1, 2):
                    again = at + n * int(self._random.uniform(5, 400) * 1e6)
                    self._schedule(Click(buyer=buyer, key=key, due_ns=again))
            else:
                self._click(buyer, at)

    async def tick(self) -> None:
        """Move due clicks to idle connections; runs until cancelled."""
        while True:
            now = time.perf_counter_ns()
            while self._due and self._due[0][0] <= now:
                self._ready.append(heapq.heappop(self._due)[2])
            self._pump()
            await asyncio.sleep(_TICK_S)

    def stop(self) -> None:
        """The crowd goes home."""
        self.stopped = True
        self._due.clear()
        self._ready.clear()
        self.finished.set()

    def restart_counts(self) -> Tally:
        """A crowd has no warm-up; nothing is forgotten."""
        return Tally()

    def idle(self, connection: Connection) -> None:
        """Keep a connection for the next click."""
        self._idle.append(connection)
        self._pump()

    def answered(self, connection: Connection, response: Response, data: bytes) -> None:
        """Count an answer; the buyer decides what he does next."""
        click: Click = connection.ticket  # type: ignore[assignment]
        now = time.perf_counter_ns()
        self.last_answer_ns = now
        self.tally.answers += 1
        self._idle.append(connection)
        comes_again = False
        if response.status == 202:
            self._accepted(click, self.tally.accepted(response, data, click.buyer.number))
        else:
            code = self.tally.refused(response, data)
            retry_after = retry_after_s(data, response.body_start)
            comes_again = self._refused(click, response.status, code, retry_after)
        if not comes_again:
            self.tally.histogram.add((now - click.due_ns) // 1000)
        self._pump()

    def failed(self, connection: Connection, reason: str) -> None:
        """No answer: the buyer asks again with the same key."""
        self.tally.error(reason)
        if isinstance(connection.ticket, Click):
            self._again(connection.ticket, after_s=0.2)

    def _make_buyer(self, number: int) -> Buyer:
        draw = self._random.random()
        plan = self._plan
        if draw < plan.clickers:
            habit = Habit.CLICKER
        elif draw < plan.clickers + plan.key_reusers:
            habit = Habit.KEY_REUSER
        else:
            habit = Habit.ORDINARY
        patient = self._random.random() >= plan.gives_up_after_503
        return Buyer(number=number, habit=habit, patient=patient)

    def _click(self, buyer: Buyer, due_ns: int) -> str:
        key = self._builder.key(buyer.number, buyer.clicks)
        buyer.clicks += 1
        self._schedule(Click(buyer=buyer, key=key, due_ns=due_ns))
        return key

    def _schedule(self, click: Click, *, due_ns: int = 0) -> bool:
        """Put a click on the clock, at another time than its own when it comes again."""
        if not self.stopped:
            heapq.heappush(self._due, (due_ns or click.due_ns, next(self._order), click))
        return not self.stopped

    def _pump(self) -> None:
        while self._ready and self._idle:
            connection = self._idle.popleft()
            if not connection.usable:
                continue
            click = self._ready.popleft()
            connection.ticket = click
            if not self.sent:
                self.first_sent_epoch_s = time.time()
            self.sent += 1
            connection.send(self._builder.whole(click.buyer.number, key=click.key))

    def _accepted(self, click: Click, reservation: bytes) -> None:
        buyer = click.buyer
        if buyer.has and reservation and buyer.has != reservation:
            self.tally.double_reservations += 1
        buyer.has = reservation or buyer.has

    def _refused(self, click: Click, status: int, code: str, retry_after: int) -> bool:
        """Decide what a refused buyer does; return whether he asks again with this click."""
        buyer = click.buyer
        if status == 503 and buyer.patient:
            after_s = max(retry_after, 0.2) * self._random.uniform(1.0, 1.5)
            return self._again(click, after_s=after_s)
        if code == "SOLD_OUT" and self._comes_back(click):
            # He was told that units may come back, and looks again with a new click.
            pause_s = self._plan.comes_back_s * self._random.uniform(0.7, 1.3)
            self._click(buyer, time.perf_counter_ns() + int(pause_s * 1e9))
        return False

    def _comes_back(self, click: Click) -> bool:
        """Tell whether the buyer looks again: after his newest click only, never with a unit."""
        buyer = click.buyer
        newest = click.key == self._builder.key(buyer.number, buyer.clicks - 1)
        return newest and not buyer.has and bool(self._plan.comes_back_s)

    def _again(self, click: Click, *, after_s: float) -> bool:
        click.tries += 1
        if click.tries > 5:
            return False
        return self._schedule(click, due_ns=time.perf_counter_ns() + int(after_s * 1e9))

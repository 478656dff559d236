"""From the broker into one loop: poller threads and a buffer as large as the next transaction.

A poller asks only for what there is room for, so that nothing is received that the next transaction
cannot take. While `held` nothing is asked for, and what a running long poll still brings is left
un-acked: it comes back after its invisible time.
"""

import threading
import time
from dataclasses import dataclass
from typing import Final

import structlog
from django.conf import settings

from messaging import metrics
from messaging.backpressure import Backoff
from messaging.broker.base import ReceivedMessage, Receiver
from messaging.errors import BrokerUnavailable
from messaging.pulse import Pulse

RECEIVE_MAX: Final = 32  # the broker gives no more in one answer
_GIVE_BACK_S: Final = 1.0
_REST_MAX_S: Final = 1.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class LoopOptions:
    """Numbers of one consumer loop.

    Args:
        batch_max: most messages in one transaction; also the buffer's size.
        invisible_s: how long a received message stays hidden from others.
        min_left_s: a message with less of that left is not begun.
        wait_s: long poll.
        ack_timeout_ms: deadline of one batch ack.
        pollers: threads that receive.
    """

    batch_max: int
    invisible_s: int
    min_left_s: float
    wait_s: int
    ack_timeout_ms: int
    pollers: int = 2

    @classmethod
    def from_settings(cls) -> "LoopOptions":
        """Return the numbers of the settings."""
        return cls(
            batch_max=settings.SECKILL_BATCH_MAX,
            invisible_s=settings.SECKILL_INVISIBLE_S,
            min_left_s=settings.SECKILL_MIN_INVISIBLE_LEFT_S,
            wait_s=settings.SECKILL_LONG_POLL_S,
            ack_timeout_ms=settings.SECKILL_ACK_TIMEOUT_MS,
            pollers=settings.SECKILL_POLLERS,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Rest:
    """What a loop does after messages came, while it is not behind: ask nobody for a while.

    Args:
        per_work: times as long as its work took.
        least_s: seconds it rests at least.
    """

    per_work: float
    least_s: float


NO_REST: Final = Rest(per_work=0, least_s=0)
CORE_REST: Final = Rest(per_work=2, least_s=0.05)
# Seven groups that take each event as it comes cost half a core.
SIDE_REST: Final = Rest(per_work=9, least_s=0.5)


class Inflow:
    """The buffer and its pollers. Starts held.

    Args:
        receiver: asked for messages.
        group: the consumer group, for counters.
        options: numbers of the loop.
        pulse: touched by each poller.
        rest: taken between the handling of a batch and the next question.
    """

    def __init__(
        self,
        receiver: Receiver,
        *,
        group: str,
        options: LoopOptions,
        pulse: Pulse,
        rest: Rest = NO_REST,
    ) -> None:
        self._receiver = receiver
        self._group = group
        self._options = options
        self._pulse = pulse
        self._rest = rest
        self._changed = threading.Condition()
        self._buffer: list[ReceivedMessage] = []
        self._asked = 0
        self._full = False  # the last answer was: there is more
        self._ask_at = 0.0
        self._limit = options.batch_max
        self._held = "starting"
        self._closed = False
        self._failing = False
        self._pollers = [
            threading.Thread(target=self._poll, args=(f"poller-{n}",), daemon=True)
            for n in range(options.pollers)
        ]

    def start(self) -> None:
        """Start the pollers; they wait until `resume`."""
        for poller in self._pollers:
            poller.start()

    @property
    def failing(self) -> bool:
        """True while the broker cannot be asked: silence is no proof of an empty queue then."""
        return self._failing

    def take(self, *, timeout_s: float) -> list[ReceivedMessage]:
        """Return everything that waits, up to the limit; an empty list when nothing came."""
        with self._changed:
            self._changed.wait_for(lambda: self._buffer or self._closed, timeout_s)
            most = self._limit or self._options.batch_max
            batch = self._buffer[:most]
            del self._buffer[:most]
            self._changed.notify_all()
            return batch

    def limit(self, batch: int) -> None:
        """Set the most messages of a transaction; with 0 nothing more is asked for.

        What was received before is still handled: leaving it would burn a delivery attempt.
        """
        with self._changed:
            if batch != self._limit:
                self._limit = min(batch, self._options.batch_max)
                self._changed.notify_all()

    def worked(self, seconds: float) -> None:
        """Note how long the handling of a batch took."""
        with self._changed:
            rest_s = max(self._rest.least_s, seconds * self._rest.per_work)
            self._ask_at = time.monotonic() + min(rest_s, _REST_MAX_S)
            self._changed.notify_all()

    def hold(self, why: str) -> None:
        """Ask for nothing more; what waits in the buffer is left un-acked.

        Args:
            why: `outage` or `paused`, for the counter.
        """
        with self._changed:
            self._held = why
            self._leave(self._buffer, why)
            self._buffer.clear()

    def resume(self) -> None:
        """Ask again."""
        with self._changed:
            if self._held:
                self._held = ""
                self._ask_at = 0.0
                self._changed.notify_all()

    def close(self) -> None:
        """Ask for nothing more and give back what waits, within a second."""
        with self._changed:
            self._closed = True
            rest = list(self._buffer)
            self._buffer.clear()
            self._changed.notify_all()
        self._give_back(rest)

    def join(self, timeout_s: float) -> None:
        """Wait for the pollers, after the receiver was closed."""
        for poller in self._pollers:
            if poller.is_alive():
                poller.join(timeout_s)

    def _poll(self, name: str) -> None:
        backoff = Backoff(first_s=0.05, cap_s=1.0)
        while room := self._reserve(name):
            found: list[ReceivedMessage] = []
            failed = False
            try:
                found = self._receiver.receive(
                    max_messages=room,
                    invisible_s=self._options.invisible_s,
                    wait_s=self._options.wait_s,
                )
            except BrokerUnavailable as error:
                failed = True
                self._note_failure(str(error))
            except Exception:
                # A poller that dies silently would leave a worker that lives and does nothing.
                failed = True
                log.exception("receive_crashed", consumer_group=self._group)
            finally:
                rest = self._deliver(found, room)
            self._give_back(rest)
            self._failing = failed
            if failed:
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, backoff.next_s())
            else:
                backoff.reset()
        self._pulse.end(name)

    def _reserve(self, name: str) -> int:
        """Wait for room and take it; 0 when closed."""
        with self._changed:
            while not self._closed:
                self._pulse.touch(name)
                chunk = min(RECEIVE_MAX, self._limit)
                room = self._limit - len(self._buffer) - self._asked
                if not self._held and chunk and room >= chunk:
                    early_s = self._early_s()
                    if early_s == 0:
                        self._asked += chunk
                        return chunk
                    self._changed.wait(early_s)
                else:
                    self._changed.wait(1.0)
        return 0

    def _early_s(self) -> float:
        """Return how many seconds it is too early to ask; 0 when it is time.

        A question, a transaction and an ack cost all parts some milliseconds, however little they
        carry. So one question is open at a time, unless the last answer was full; and after one
        that was not, the loop rests in proportion to its work while more gathers at the broker:
        the busier the machine, the larger the batches, instead of ever more small ones.
        """
        if self._full:
            return 0.0
        if self._asked:
            return 1.0
        return max(0.0, self._ask_at - time.monotonic())

    def _deliver(self, found: list[ReceivedMessage], room: int) -> list[ReceivedMessage]:
        """Put what came into the buffer; return it when the loop has ended meanwhile."""
        with self._changed:
            self._asked -= room
            self._full = len(found) >= room
            self._ask_at = time.monotonic() + _REST_MAX_S if found else 0.0  # until `worked`
            self._changed.notify_all()
            if self._closed:
                return found
            if self._held:
                self._leave(found, self._held)
            else:
                self._buffer += found
            return []

    def _give_back(self, messages: list[ReceivedMessage]) -> None:
        """Let other members have them at once; what fails comes back by itself a little later."""
        self._leave(messages, "stopping")
        deadline = time.monotonic() + _GIVE_BACK_S
        for message in messages:
            if time.monotonic() > deadline:
                return
            try:
                self._receiver.change_invisible(message, invisible_s=0)
            except BrokerUnavailable:
                return

    def _leave(self, messages: list[ReceivedMessage], why: str) -> None:
        if messages:
            metrics.LEFT.labels(self._group, why).inc(len(messages))

    def _note_failure(self, text: str) -> None:
        metrics.RECEIVE_FAILURE.labels(self._group).inc()
        if not self._failing:
            log.warning("receive_failed", consumer_group=self._group, error=text)

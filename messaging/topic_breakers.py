"""One breaker per topic, shared by the sender's threads: a topic that fails stops only itself."""

import threading
import time
from collections.abc import Callable

import structlog

from messaging import metrics
from messaging.backpressure import TopicBreaker

log = structlog.get_logger(__name__)


class TopicBreakers:
    """Thread-safe.

    Args:
        monotonic: seconds.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._breakers: dict[str, TopicBreaker] = {}

    def blocked(self) -> list[str]:
        """Return the topics that nothing may be sent to right now."""
        now = self._monotonic()
        with self._lock:
            return [topic for topic, found in self._breakers.items() if not found.allows(now)]

    def permit(self, topic: str) -> bool:
        """Tell whether one send may begin; an open breaker lets one probe through at a time."""
        now = self._monotonic()
        with self._lock:
            found = self._breakers.setdefault(topic, TopicBreaker())
            if not found.allows(now):
                return False
            found.begin_probe(now)
            return True

    def is_open(self, topic: str) -> bool:
        """Tell whether the topic as a whole fails."""
        with self._lock:
            return topic in self._breakers and self._breakers[topic].is_open

    def probe_was_moot(self, topic: str) -> None:
        """Note a send whose end tells nothing about the topic: the next one may probe at once."""
        with self._lock:
            if topic in self._breakers:
                self._breakers[topic].probe_was_moot(self._monotonic())

    def record(self, topic: str, *, ok: bool, code: str = "") -> None:
        """Note the end of a send."""
        with self._lock:
            found = self._breakers.setdefault(topic, TopicBreaker())
            before = found.is_open
            if ok:
                found.succeeded()
            else:
                found.failed(self._monotonic())
            after = found.is_open
        if before is not after:
            metrics.OUTBOX_BREAKER_OPEN.labels(topic).set(after)
            log.warning("topic_breaker", topic=topic, open=after, code=code)

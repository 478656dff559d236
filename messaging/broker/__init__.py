"""The broker port's front door: one `Broker` per process, chosen by the settings."""

import os
import threading

from django.conf import settings

from messaging.broker.base import Broker

_lock = threading.Lock()
_current: tuple[int, str, Broker] | None = None


def broker() -> Broker:
    """Return this process's broker: made at the first call, and again after a fork.

    `ROCKETMQ_ENDPOINTS=memory` gives the in-memory twin (unit tests only).
    """
    global _current
    key = (os.getpid(), settings.ROCKETMQ_ENDPOINTS)
    known = _current
    if known is not None and known[:2] == key:
        return known[2]
    with _lock:
        if _current is None or _current[:2] != key:
            _current = (*key, _make())
        return _current[2]


def _make() -> Broker:
    # Imported here: the client costs half a second, and migrate or the admin never need it.
    if settings.ROCKETMQ_ENDPOINTS == "memory":
        from messaging.broker.memory import MemoryBroker

        return MemoryBroker()
    from messaging.broker.rocketmq import RocketMQBroker

    return RocketMQBroker.from_settings()

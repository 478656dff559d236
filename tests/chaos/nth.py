"""Fails the Nth operation of a piece of work: before it takes effect, or after it, unnoticed.

An operation is one SQL statement or COMMIT, one command to Redis, or one call of the broker. A
failed statement takes its connection with it, as a server that dies does.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg
import pytest
import redis
from django.db import OperationalError, connection

from inventory.gate import Gate
from messaging.broker.base import OutgoingMessage, ReceivedMessage, SendResult
from messaging.errors import BrokerUnavailable
from tests.invariants import wire as wires
from tests.invariants.wire import UNKNOWN_LOST, UNKNOWN_STORED, Wire

SQL, REDIS, BROKER = "sql", "redis", "broker"
BEFORE, AFTER = "before", "after"
KINDS: Final = (SQL, REDIS, BROKER)
MOMENTS: Final = (BEFORE, AFTER)


@dataclass
class Nth:
    """Counts the operations of one kind and fails one of them. `struck` tells which it was."""

    kind: str
    moment: str
    number: int
    seen: int = 0
    struck: str = ""

    def strikes(self, kind: str, what: str) -> bool:
        """Count an operation; True when it is the one to fail."""
        if kind != self.kind:
            return False
        self.seen += 1
        if self.seen != self.number:
            return False
        self.struck = what
        return True


@contextmanager
def failing(nth: Nth, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail the Nth operation of what runs in here."""
    with patch.context() as inner, connection.execute_wrapper(_statement(nth)):
        inner.setattr(connection, "_commit", _commit(nth, connection._commit))
        inner.setattr(Gate, "_send", _command(nth, Gate._send))
        inner.setattr(Wire, "send", _send(nth, Wire.send))
        inner.setattr(wires._Receiver, "receive", _receive(nth, wires._Receiver.receive))
        inner.setattr(wires._Receiver, "ack", _ack(nth, wires._Receiver.ack))
        yield


def _lose_database() -> None:
    """The server is gone: the session ends, and the statement's caller hears of it."""
    if connection.connection is not None:
        connection.connection.close()
    lost = psycopg.OperationalError("server closed the connection unexpectedly")
    raise OperationalError(str(lost)) from lost


def _statement(nth: Nth) -> Callable[..., Any]:
    def run(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if not nth.strikes(SQL, " ".join(str(sql).split())[:80]):
            return execute(sql, params, many, context)
        if nth.moment == AFTER:
            execute(sql, params, many, context)
        _lose_database()
        return None

    return run


def _commit(nth: Nth, commit: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        if not nth.strikes(SQL, "COMMIT"):
            commit()
            return
        if nth.moment == AFTER:
            commit()
        _lose_database()

    return run


def _command(nth: Nth, send: Callable[..., Any]) -> Callable[..., Any]:
    def run(gate: Gate, call: Any) -> Any:
        if not nth.strikes(REDIS, call.script or "read"):
            return send(gate, call)
        if nth.moment == AFTER:
            send(gate, call)
        raise redis.ConnectionError("Connection closed by server.")

    return run


def _send(nth: Nth, send: Callable[..., SendResult]) -> Callable[..., SendResult]:
    def run(wire: Wire, messages: Sequence[OutgoingMessage], *, timeout_ms: int) -> SendResult:
        if nth.strikes(BROKER, f"send {messages[0].topic}"):
            wire.next_send = UNKNOWN_STORED if nth.moment == AFTER else UNKNOWN_LOST
        return send(wire, messages, timeout_ms=timeout_ms)

    return run


def _receive(nth: Nth, receive: Callable[..., Any]) -> Callable[..., Any]:
    """What was handed out is invisible for a while, whoever missed it: no matter which moment."""

    def run(receiver: Any, **how: Any) -> Any:
        if nth.strikes(BROKER, "receive"):
            raise BrokerUnavailable("UNAVAILABLE")
        return receive(receiver, **how)

    return run


def _ack(nth: Nth, ack: Callable[..., list[str]]) -> Callable[..., list[str]]:
    def run(receiver: Any, messages: Sequence[ReceivedMessage], *, timeout_ms: int) -> list[str]:
        if not nth.strikes(BROKER, "ack"):
            return ack(receiver, messages, timeout_ms=timeout_ms)
        if nth.moment == AFTER:
            ack(receiver, messages, timeout_ms=timeout_ms)
        return [message.message_id for message in messages]

    return run

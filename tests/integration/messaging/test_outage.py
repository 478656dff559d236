"""A database that reads and does not write: no message pays for it but the one on trial."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest
from django.conf import LazySettings
from django.db import connection, connections, transaction

from messaging.broker.base import ReceivedMessage
from messaging.broker.memory import MemoryBroker
from messaging.disposition import Decision
from messaging.errors import TransientError
from messaging.probe import stores_work
from messaging.pulse import LoopState
from messaging.topology import CG_ORDER_CREATE, dlq_topic
from tests.integration.messaging.consuming import SHORT, consuming
from tests.integration.messaging.messages import (
    InboxHandler,
    acked,
    eventually,
    evt,
    inbox_ids,
    publish,
)

pytestmark = pytest.mark.django_db(transaction=True)

FULL = """
CREATE FUNCTION disk_is_full() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$;
CREATE TRIGGER disk_is_full BEFORE INSERT ON messaging_inbox
    FOR EACH ROW EXECUTE FUNCTION disk_is_full();
"""


def _run(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


@contextmanager
def full_disk() -> Iterator[None]:
    """What reads still works; what writes raises as a full disk does."""
    _run(FULL)
    try:
        yield
    finally:
        _run("DROP FUNCTION disk_is_full CASCADE")


class Counting(InboxHandler):
    """Notes the deliveries of each message."""

    def __init__(self) -> None:
        super().__init__()
        self.deliveries: dict[str, int] = {}

    def handle(self, messages: Sequence[ReceivedMessage]) -> Sequence[Decision]:
        self.deliveries.update({m.message_id: m.delivery_attempt for m in messages})
        return super().handle(messages)


def test_a_full_disk_burns_one_delivery_and_the_way_back_is_one_message_at_first(
    broker: MemoryBroker,
) -> None:
    ids = [evt() for _ in range(30)]
    handler = Counting()
    with full_disk():
        publish(broker, *ids)
        member = consuming(broker, handler, options=SHORT)
        pulse = member.__enter__()
        eventually(lambda: pulse.snapshot()[0] is LoopState.WAITING)
        time.sleep(2.5)  # twice the invisible time: all would have come again and again
        assert len(handler.batches) == 1
        assert acked(broker) == []
    try:
        eventually(lambda: sorted(acked(broker)) == sorted(ids))
    finally:
        member.__exit__(None, None, None)

    assert inbox_ids() == set(ids)
    assert [len(batch) for batch in handler.batches[1:2]] == [1]
    assert max(map(len, handler.batches[2:])) > 1  # the normal size again
    assert max(handler.deliveries.values()) <= 3
    assert broker.stored(dlq_topic(CG_ORDER_CREATE)) == []


def test_while_only_the_handler_fails_one_message_at_a_time_pays(broker: MemoryBroker) -> None:
    """The probe passes and is wrong: ever later, and never with more than one message."""
    ids = [evt() for _ in range(30)]
    publish(broker, *ids)
    away = threading.Event()
    away.set()

    class Hot(Counting):
        def handle(self, messages: Sequence[ReceivedMessage]) -> Sequence[Decision]:
            self.inject = lambda ids: self._fail() if away.is_set() else None
            return super().handle(messages)

        def _fail(self) -> None:
            raise TransientError("a lock that the probe does not need")

    handler = Hot()
    with consuming(broker, handler, options=replace(SHORT, pollers=1)):
        eventually(lambda: len(handler.batches) >= 5)
        away.clear()
        eventually(lambda: sorted(acked(broker)) == sorted(ids))

    sizes = [len(batch) for batch in handler.batches]
    assert sizes[0] > 1
    assert sizes[1:5] == [1] * 4
    assert max(sizes[5:]) > 1
    assert inbox_ids() == set(ids)


def test_the_probe_writes_and_leaves_nothing() -> None:
    assert stores_work(object())
    assert inbox_ids() == set()


def test_a_read_only_database_does_not_work() -> None:
    _run("SET default_transaction_read_only = on")
    try:
        assert not stores_work(object())
        assert stores_work(object())  # on a new connection, as a loop would
    finally:
        connection.close()


def test_locked_tables_do_not_work(settings: LazySettings) -> None:
    settings.SECKILL_LOCK_TIMEOUT_MS = 50
    locked, done = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                _run("LOCK TABLE messaging_inbox IN ACCESS EXCLUSIVE MODE")
                locked.set()
                done.wait(10)
        finally:
            connections.close_all()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert locked.wait(10)
        assert not stores_work(object())
    finally:
        done.set()
        thread.join(10)
    assert stores_work(object())


def test_what_else_a_handler_needs_is_asked_too() -> None:
    class NoGate:
        def probe(self) -> None:
            raise TransientError("the gate does not answer")

    assert not stores_work(NoGate())

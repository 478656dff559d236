"""What a consumer does with what fails: tries again, quarantines, waits, pauses; never sticks."""

import threading
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
from django.contrib.auth.models import Permission, User
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError

from messaging import pauses, quarantine, selectors
from messaging.backpressure import QuarantineBreaker
from messaging.broker.base import ReceivedMessage
from messaging.broker.memory import MemoryBroker
from messaging.consumer import GroupConsumer
from messaging.disposition import Decision, retry
from messaging.disposition import quarantine as give_up
from messaging.errors import PermanentError, TransientError
from messaging.facts import BodyFacts
from messaging.models import GroupPause, QuarantineRow
from messaging.pulse import LoopState, Pulse
from messaging.topology import CG_ORDER_CREATE, ORDER_CREATE, dlq_topic
from messaging.worker import StopSignal
from tests.integration.messaging.consuming import GROUP, SHORT, consuming
from tests.integration.messaging.messages import (
    OPTIONS,
    InboxHandler,
    acked,
    eventually,
    evt,
    inbox_ids,
    publish,
    terminate_others,
)

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_handler_that_always_raises_gets_exactly_its_deliveries_then_quarantine() -> None:
    """Case 8: the retry counter grows, the broker's dead letters stay empty."""
    group = replace(GROUP, max_retries=2)
    broker = MemoryBroker(groups=[group])
    message_id = evt()
    publish(broker, message_id)
    deliveries: list[int] = []

    class Broken:
        def handle(self, messages: Sequence[ReceivedMessage]) -> Sequence[Decision]:
            deliveries.extend(m.delivery_attempt for m in messages)
            raise ValueError("handler bug")

    consumer = GroupConsumer(
        group=group,
        handler=Broken(),
        receiver=broker.receiver(group=group.name, topic=group.topic),
        stop=StopSignal(),
        pulse=Pulse(),
        options=replace(OPTIONS, min_left_s=-1),  # redelivered at once
    )
    receiver = broker.receiver(group=group.name, topic=group.topic)
    for _ in range(3):
        consumer.work(receiver.receive(max_messages=32, invisible_s=0, wait_s=1))
    consumer._close()

    assert deliveries == [1, 2, 3]
    row = QuarantineRow.objects.get()
    assert (row.message_id, row.reason, row.delivery_attempt) == (message_id, "ValueError", 3)
    assert row.status == "OPEN"
    assert acked(broker) == [message_id]
    assert receiver.receive(max_messages=32, invisible_s=0, wait_s=0) == []
    assert broker.stored(dlq_topic(group.name)) == []
    assert inbox_ids() == set()


def test_a_body_nobody_can_read_is_quarantined_once_committed_then_acked(
    broker: MemoryBroker,
) -> None:
    bad, good = evt(), evt()
    publish(broker, bad, body=b"\x00\xff not json")
    publish(broker, good)

    class Decoding(InboxHandler):
        def handle(self, messages: Sequence[ReceivedMessage]) -> Sequence[Decision]:
            decisions = iter(super().handle([m for m in messages if m.body == b"{}"]))
            return [
                next(decisions) if m.body == b"{}" else give_up("INVALID_JSON") for m in messages
            ]

        def facts(self, message: ReceivedMessage) -> BodyFacts:
            return BodyFacts(reservation_id="rsv_from_the_gate", activity_id=7)

    with consuming(broker, Decoding()):
        eventually(lambda: sorted(acked(broker)) == sorted([bad, good]))

    row = QuarantineRow.objects.get()
    assert (row.message_id, row.reason, bytes(row.body)) == (
        bad, "INVALID_JSON", b"\x00\xff not json",
    )  # fmt: skip
    assert (row.reservation_id, row.activity_id) == ("rsv_from_the_gate", 7)
    assert inbox_ids() == {good}


def test_a_quarantine_row_that_cannot_be_written_means_no_ack(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are committed before the ack: the message must not be dropped with its row."""
    message_id = evt()
    publish(broker, message_id)
    store, refused = quarantine.store, []

    def refuse_once(entries: Sequence[quarantine.QuarantineEntry]) -> None:
        if not refused:
            refused.append(entries)
            raise DatabaseError("disk full")
        store(entries)

    monkeypatch.setattr(quarantine, "store", refuse_once)

    class Poison:
        def handle(self, messages: Sequence[ReceivedMessage]) -> Sequence[Decision]:
            assert acked(broker) == []
            raise PermanentError("BAD")

    with consuming(broker, Poison(), options=SHORT):
        eventually(lambda: acked(broker) == [message_id])

    assert len(refused) == 1
    assert QuarantineRow.objects.get().reason == "BAD"


def test_an_outage_stops_receiving_until_a_probe_passes(broker: MemoryBroker) -> None:
    """No message is tried again, none is acked, none becomes a dead letter meanwhile."""
    first, second = evt(), evt()
    publish(broker, first)
    away = threading.Event()
    away.set()

    class Gate(InboxHandler):
        def handle(self, messages: Sequence[ReceivedMessage]) -> Sequence[Decision]:
            if away.is_set():
                self.batches.append(["failed"])
                raise TransientError("the gate does not answer")
            return super().handle(messages)

        def probe(self) -> None:
            if away.is_set():
                raise TransientError("still away")

    handler = Gate()
    with consuming(broker, handler, options=SHORT) as pulse:
        eventually(lambda: pulse.snapshot()[0] is LoopState.WAITING)
        publish(broker, second)
        time.sleep(1.5)  # longer than the invisible time: it would have come again
        assert handler.batches == [["failed"]]
        assert acked(broker) == []

        away.clear()
        eventually(lambda: sorted(acked(broker)) == sorted([first, second]))
        eventually(lambda: pulse.snapshot()[0] is LoopState.RUNNING)

    assert not QuarantineRow.objects.exists()


def test_a_restarted_database_never_sticks(broker: MemoryBroker) -> None:
    """'the connection is closed' for ever: every connection is cut after each message."""
    ids = [evt() for _ in range(4)]
    with consuming(broker, InboxHandler(), options=SHORT):
        for round_, message_id in enumerate(ids):
            publish(broker, message_id)
            eventually(lambda want=round_ + 1: len(set(acked(broker))) == want)
            assert terminate_others() >= 1

    assert inbox_ids() == set(ids)


def test_too_much_quarantine_pauses_the_group_and_an_operator_resumes_it(
    broker: MemoryBroker,
) -> None:
    ids = [evt() for _ in range(10)]
    publish(broker, *ids)
    healthy = threading.Event()

    class Deploy(InboxHandler):
        def handle(self, messages: Sequence[ReceivedMessage]) -> Sequence[Decision]:
            if not healthy.is_set():
                raise PermanentError("BAD_DEPLOY")
            return super().handle(messages)

    operator = User.objects.create_user("olga", is_staff=True)
    breaker = QuarantineBreaker(in_a_row=3)
    with consuming(broker, Deploy(), options=SHORT, breaker=breaker) as pulse:
        eventually(lambda: pulse.snapshot()[0] is LoopState.PAUSED)
        eventually(lambda: len(acked(broker)) == 3)
        pause = GroupPause.objects.get()
        assert pause.reason == "QUARANTINE_BREAKER: BAD_DEPLOY"
        assert pause.paused_by.startswith("breaker:")
        assert QuarantineRow.objects.count() == 3

        healthy.set()
        with pytest.raises(PermissionDenied):
            pauses.resume(group=GROUP.name, user=operator)
        assert GroupPause.objects.exists()
        operator.user_permissions.add(Permission.objects.get(codename="resume_group"))
        operator = User.objects.get(pk=operator.pk)
        assert pauses.resume(group=GROUP.name, user=operator)
        eventually(lambda: len(acked(broker)) == 10)

    assert QuarantineRow.objects.count() == 3  # the other seven were never diverted
    assert len(inbox_ids()) == 7


def test_the_breaker_sees_a_bug_that_is_retried_first(broker: MemoryBroker) -> None:
    """Retries of some messages between the quarantines of others are no successes."""
    ids = [evt() for _ in range(12)]
    publish(broker, *ids)

    class Bug(InboxHandler):
        def handle(self, messages: Sequence[ReceivedMessage]) -> Sequence[Decision]:
            return [
                give_up("BUG") if ids.index(m.message_id) % 2 else retry("BUG") for m in messages
            ]

    with consuming(broker, Bug(), options=SHORT, breaker=QuarantineBreaker(in_a_row=3)) as pulse:
        eventually(lambda: pulse.snapshot()[0] is LoopState.PAUSED)

    assert QuarantineRow.objects.count() <= 6  # none of those that were to come back


def test_a_group_paused_beforehand_receives_nothing(broker: MemoryBroker) -> None:
    admin = User.objects.create_superuser("root")
    pauses.pause(group=GROUP.name, reason="maintenance", user=admin)
    publish(broker, evt())

    with consuming(broker, InboxHandler()) as pulse:
        eventually(lambda: pulse.snapshot()[0] is LoopState.PAUSED)

    assert broker._cursors[CG_ORDER_CREATE, ORDER_CREATE].deliveries == {}
    assert [p.group for p in selectors.paused_groups()] == [GROUP.name]

"""The consumer loop on real PostgreSQL: nothing acked that is not committed, nothing stuck."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest
from django.contrib.auth.models import Permission, User
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, connection, connections

from messaging import pauses, quarantine, selectors
from messaging.backpressure import QuarantineBreaker
from messaging.broker.base import ReceivedMessage
from messaging.broker.memory import MemoryBroker
from messaging.consumer import GroupConsumer, run_loop
from messaging.disposition import DONE, Decision
from messaging.disposition import quarantine as give_up
from messaging.errors import PermanentError, TransientError
from messaging.facts import BodyFacts
from messaging.inflow import LoopOptions
from messaging.models import GroupPause, QuarantineRow
from messaging.pulse import LoopState, Pulse
from messaging.topology import CG_ORDER_CREATE, ORDER_CREATE, dlq_topic, group_spec
from messaging.worker import StopSignal
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

GROUP = group_spec(CG_ORDER_CREATE)
SHORT = replace(OPTIONS, invisible_s=1, min_left_s=0.1)


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@contextmanager
def consuming(
    broker: MemoryBroker,
    handler: object,
    *,
    options: LoopOptions = OPTIONS,
    breaker: QuarantineBreaker | None = None,
) -> Iterator[Pulse]:
    """A member of the group, in a thread, stopped at the end."""
    stop, pulse = StopSignal(), Pulse()
    crashed: list[BaseException] = []

    def run() -> None:
        try:
            GroupConsumer(
                group=GROUP,
                handler=handler,  # type: ignore[arg-type]
                receiver=broker.receiver(group=GROUP.name, topic=GROUP.topic),
                stop=stop,
                pulse=pulse,
                options=options,
                breaker=breaker,
            ).run()
        except BaseException as error:
            crashed.append(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield pulse
    finally:
        stop.set()
        thread.join(10)
        assert not thread.is_alive()
        assert not crashed


def test_everything_that_waits_is_one_batch_committed_then_acked(broker: MemoryBroker) -> None:
    ids = [evt() for _ in range(60)]
    publish(broker, *ids)
    handler = InboxHandler()

    with consuming(broker, handler):
        eventually(lambda: len(acked(broker)) == 60)

    assert inbox_ids() == set(ids)
    assert sorted(acked(broker)) == sorted(ids)
    assert sum(map(len, handler.batches)) == 60
    assert len(handler.batches) <= 4  # 32 a receive, never a message each


def test_the_same_message_to_two_consumers_at_a_barrier_has_one_effect(
    broker: MemoryBroker,
) -> None:
    """Case 9, with the first delivery still uncommitted when the second begins."""
    message_id = evt()
    publish(broker, message_id)
    barrier = threading.Barrier(2, timeout=10)
    receiver = broker.receiver(group=GROUP.name, topic=GROUP.topic)
    [message] = receiver.receive(max_messages=1, invisible_s=0, wait_s=1)
    decisions: list[Decision] = []

    def deliver() -> None:
        try:
            handler = InboxHandler()
            barrier.wait()
            decisions.extend(handler.handle([message]))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=deliver) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert sorted(d.disposition for d in decisions) == ["ACK_DONE", "ACK_DUPLICATE"]
    assert inbox_ids() == {message_id}


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


def test_a_message_is_acked_only_after_its_commit(broker: MemoryBroker) -> None:
    """Case 37: a failing COMMIT acks nothing; the redelivery does everything once."""
    message_id = evt()
    publish(broker, message_id)
    failures = iter([True])

    def kill_own_connection(ids: list[str]) -> None:
        if next(failures, False):
            assert acked(broker) == []
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    handler = InboxHandler(kill_own_connection)
    with consuming(broker, handler, options=SHORT):
        eventually(lambda: acked(broker) == [message_id])

    assert len(handler.batches) == 2
    assert inbox_ids() == {message_id}


def test_a_lost_ack_is_counted_and_the_redelivery_is_a_duplicate(broker: MemoryBroker) -> None:
    """Case 12: the second delivery changes nothing and is acked."""
    message_id = evt()
    publish(broker, message_id)
    broker.fail_next_acks(1)
    handler = InboxHandler()

    with consuming(broker, handler, options=SHORT):
        eventually(lambda: acked(broker) == [message_id])

    assert handler.batches == [[message_id], [message_id]]
    assert inbox_ids() == {message_id}
    assert not QuarantineRow.objects.exists()


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


def test_a_message_with_too_little_invisible_time_left_is_not_begun(broker: MemoryBroker) -> None:
    message_id = evt()
    publish(broker, message_id)
    handler = InboxHandler()
    receiver = broker.receiver(group=GROUP.name, topic=GROUP.topic)
    consumer = GroupConsumer(
        group=GROUP, handler=handler, receiver=receiver, stop=StopSignal(), pulse=Pulse(),
        options=replace(OPTIONS, min_left_s=7),
    )  # fmt: skip
    [late] = receiver.receive(max_messages=1, invisible_s=5, wait_s=1)

    consumer.work([late])
    assert handler.batches == []
    consumer.work([replace(late, delivery_attempt=GROUP.max_retries + 1)])  # nobody gets it again
    consumer._close()

    assert handler.batches == [[message_id]]
    assert acked(broker) == [message_id]


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


def test_a_group_paused_beforehand_receives_nothing(broker: MemoryBroker) -> None:
    admin = User.objects.create_superuser("root")
    pauses.pause(group=GROUP.name, reason="maintenance", user=admin)
    publish(broker, evt())

    with consuming(broker, InboxHandler()) as pulse:
        eventually(lambda: pulse.snapshot()[0] is LoopState.PAUSED)

    assert broker._cursors[CG_ORDER_CREATE, ORDER_CREATE].deliveries == {}
    assert [p.group for p in selectors.paused_groups()] == [GROUP.name]


def test_stopping_finishes_what_is_in_flight_and_leaves_the_rest(broker: MemoryBroker) -> None:
    """Case 16's consumer half: a full batch in memory at SIGTERM loses nothing."""
    ids = [evt() for _ in range(300)]
    publish(broker, *ids)
    began, go_on = threading.Event(), threading.Event()

    def pause(batch: list[str]) -> None:
        began.set()
        assert go_on.wait(10)

    stop = StopSignal()
    handler = InboxHandler(pause)

    def run() -> None:
        try:
            receiver = broker.receiver(group=GROUP.name, topic=GROUP.topic)
            run_loop(GROUP, handler, receiver, stop, options=OPTIONS)
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    assert began.wait(10)
    stop.set()
    go_on.set()
    thread.join(10)

    assert not thread.is_alive()
    assert len(handler.batches) == 1
    assert set(acked(broker)) == inbox_ids() == set(handler.batches[0])
    rest = InboxHandler()
    with consuming(broker, rest):  # given back: others need not wait for the invisible time
        eventually(lambda: len(acked(broker)) == 300, within_s=5)
    assert inbox_ids() == set(ids)


def test_one_round_handles_what_one_receive_brings(broker: MemoryBroker) -> None:
    ids = [evt() for _ in range(3)]
    publish(broker, *ids)
    receiver = broker.receiver(group=GROUP.name, topic=GROUP.topic)

    run_loop(GROUP, InboxHandler(), receiver, StopSignal(), options=OPTIONS, once=True)

    assert inbox_ids() == set(ids)
    assert sorted(acked(broker)) == sorted(ids)


def test_batches_with_the_same_ids_in_any_order_do_not_deadlock() -> None:
    """Unsorted batches deadlock: here two handlers insert the same ids from both ends."""
    ids = sorted(evt() for _ in range(200))
    barrier = threading.Barrier(2, timeout=10)
    errors: list[Exception] = []
    decided: list[list[str]] = []

    def deliver(order: list[str]) -> None:
        handler = InboxHandler()
        try:
            for _ in range(3):
                barrier.wait()
                decisions = handler.handle([_received(i) for i in order])
                decided.append([d.disposition for d in decisions])
        except Exception as error:
            errors.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=deliver, args=(o,)) for o in (ids, ids[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert errors == []
    assert inbox_ids() == set(ids)
    assert sum(one.count("ACK_DONE") for one in decided) == 200


def test_the_same_id_twice_in_one_batch_has_one_effect() -> None:
    message_id = evt()

    decisions = InboxHandler().handle([_received(message_id)] * 2)

    assert inbox_ids() == {message_id}
    assert decisions == [DONE, DONE]  # both were settled by one committed row


def _received(message_id: str) -> ReceivedMessage:
    return ReceivedMessage(
        topic=ORDER_CREATE, message_id=message_id, body=b"{}", tag="CREATE_ORDER", keys=(),
        properties={}, delivery_attempt=1, receipt_handle="", invisible_until=0.0, stored_at_ms=0,
    )  # fmt: skip


def test_group_lag_comes_from_live_members_and_grows_without_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from messaging.heartbeat import Heartbeats

    assert selectors.group_lag(GROUP.name) == selectors.GroupLag(
        members=0, lag_s=0.0, drain_per_s=0.0
    )
    fast, slow = Pulse(), Pulse()
    fast.report(LoopState.RUNNING, lag_s=0.1, drain_per_s=900.0)
    slow.report(LoopState.RUNNING, lag_s=2.5, drain_per_s=100.0)
    beats = Heartbeats(role="test", members=[("a", GROUP.name, fast), ("b", GROUP.name, slow)])

    beats.beat()
    assert selectors.group_lag(GROUP.name) == selectors.GroupLag(
        members=2, lag_s=2.5, drain_per_s=1000.0
    )
    slow.finish()
    beats.beat()
    assert selectors.group_lag(GROUP.name).lag_s == 0.1

    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE messaging_heartbeat SET beat_at = now() - interval '100 s',"
            " detail = '{\"lag_s\": 2}'"
        )
    lag = selectors.group_lag(GROUP.name)
    assert lag.members == 0
    assert 102 <= lag.lag_s < 110
    assert [w.alive for w in selectors.workers()] == [False, False]

"""What only the in-memory twin can do: injected faults."""

import pytest

from messaging.broker.base import FailureClass, OutgoingMessage, SendOutcome
from messaging.broker.memory import ManualClock, MemoryBroker, SendFault
from messaging.topology import CG_ORDER_CREATE, ORDER_CREATE


def _message(message_id: str) -> OutgoingMessage:
    return OutgoingMessage(
        topic=ORDER_CREATE, message_id=message_id, body=b"{}", tag="CREATE_ORDER", keys=()
    )


@pytest.mark.parametrize(
    ("fault", "outcome", "failure", "stored"),
    [
        (SendFault.UNKNOWN_STORED, SendOutcome.UNKNOWN, None, 1),
        (SendFault.UNKNOWN_LOST, SendOutcome.UNKNOWN, None, 0),
        (SendFault.RETRY_LATER, SendOutcome.DEFINITE_FAILURE, FailureClass.RETRY_LATER, 0),
        (SendFault.LOAD, SendOutcome.DEFINITE_FAILURE, FailureClass.LOAD, 0),
        (SendFault.CONFIGURATION, SendOutcome.DEFINITE_FAILURE, FailureClass.CONFIGURATION, 0),
        (SendFault.BAD_MESSAGE, SendOutcome.DEFINITE_FAILURE, FailureClass.BAD_MESSAGE, 0),
    ],
)
def test_an_injected_fault_hits_one_send(
    fault: SendFault, outcome: SendOutcome, failure: FailureClass | None, stored: int
) -> None:
    broker = MemoryBroker(clock=ManualClock())
    producer = broker.producer()
    broker.fail_next_sends(fault)

    first = producer.send([_message("evt_1")], timeout_ms=40)
    stored_then = len(broker.stored(ORDER_CREATE))
    second = producer.send([_message("evt_1")], timeout_ms=40)

    assert (first.outcome, first.failure) == (outcome, failure)
    assert stored_then == stored
    assert second.outcome is SendOutcome.CONFIRMED
    assert len(broker.stored(ORDER_CREATE)) == stored + 1


def test_a_failed_ack_lets_the_message_come_back() -> None:
    clock = ManualClock()
    broker = MemoryBroker(clock=clock)
    broker.producer().send([_message("evt_1")], timeout_ms=40)
    receiver = broker.receiver(group=CG_ORDER_CREATE, topic=ORDER_CREATE)
    got = receiver.receive(max_messages=32, invisible_s=15, wait_s=5)
    broker.fail_next_acks()

    lost = receiver.ack(got, timeout_ms=40)
    clock.advance(15)
    (again,) = receiver.receive(max_messages=32, invisible_s=15, wait_s=5)

    assert lost == ["evt_1"]
    assert again.delivery_attempt == 2
    assert receiver.ack([again], timeout_ms=40) == []
    assert broker.acked(group=CG_ORDER_CREATE, topic=ORDER_CREATE) == ["evt_1"]

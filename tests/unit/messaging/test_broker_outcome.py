"""The outcome table: every code of the protocol has one agreed meaning."""

import pytest

from messaging.broker.base import FailureClass, SendOutcome
from messaging.broker.outcome import from_answer, from_transport
from messaging.broker.rocketmq_channel import protocol

BAD = FailureClass.BAD_MESSAGE
CONFIGURATION = FailureClass.CONFIGURATION
LOAD = FailureClass.LOAD
LATER = FailureClass.RETRY_LATER

TABLE: dict[str, FailureClass | None] = {
    "CODE_UNSPECIFIED": None,
    "MULTIPLE_RESULTS": None,
    "BAD_REQUEST": BAD,
    "ILLEGAL_ACCESS_POINT": BAD,
    "ILLEGAL_TOPIC": BAD,
    "ILLEGAL_CONSUMER_GROUP": BAD,
    "ILLEGAL_MESSAGE_TAG": BAD,
    "ILLEGAL_MESSAGE_KEY": BAD,
    "ILLEGAL_MESSAGE_GROUP": BAD,
    "ILLEGAL_MESSAGE_PROPERTY_KEY": BAD,
    "INVALID_TRANSACTION_ID": BAD,
    "ILLEGAL_MESSAGE_ID": BAD,
    "ILLEGAL_FILTER_EXPRESSION": BAD,
    "ILLEGAL_INVISIBLE_TIME": BAD,
    "ILLEGAL_DELIVERY_TIME": BAD,
    "INVALID_RECEIPT_HANDLE": BAD,
    "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE": CONFIGURATION,
    "UNRECOGNIZED_CLIENT_TYPE": CONFIGURATION,
    "MESSAGE_CORRUPTED": BAD,
    "CLIENT_ID_REQUIRED": BAD,
    "ILLEGAL_POLLING_TIME": BAD,
    "ILLEGAL_OFFSET": BAD,
    "ILLEGAL_LITE_TOPIC": BAD,
    "UNAUTHORIZED": CONFIGURATION,
    "PAYMENT_REQUIRED": None,
    "FORBIDDEN": CONFIGURATION,
    "NOT_FOUND": CONFIGURATION,
    "MESSAGE_NOT_FOUND": CONFIGURATION,
    "TOPIC_NOT_FOUND": CONFIGURATION,
    "CONSUMER_GROUP_NOT_FOUND": CONFIGURATION,
    "OFFSET_NOT_FOUND": CONFIGURATION,
    "REQUEST_TIMEOUT": None,
    "PAYLOAD_TOO_LARGE": BAD,
    "MESSAGE_BODY_TOO_LARGE": BAD,
    "MESSAGE_BODY_EMPTY": BAD,
    "PRECONDITION_FAILED": None,
    "TOO_MANY_REQUESTS": LOAD,
    "LITE_TOPIC_QUOTA_EXCEEDED": None,
    "LITE_SUBSCRIPTION_QUOTA_EXCEEDED": None,
    "REQUEST_HEADER_FIELDS_TOO_LARGE": BAD,
    "MESSAGE_PROPERTIES_TOO_LARGE": BAD,
    "INTERNAL_ERROR": None,
    "INTERNAL_SERVER_ERROR": None,
    "HA_NOT_AVAILABLE": None,
    "NOT_IMPLEMENTED": CONFIGURATION,
    "PROXY_TIMEOUT": None,
    "MASTER_PERSISTENCE_TIMEOUT": None,
    "SLAVE_PERSISTENCE_TIMEOUT": None,
    "UNSUPPORTED": CONFIGURATION,
    "VERSION_UNSUPPORTED": CONFIGURATION,
    "VERIFY_FIFO_MESSAGE_UNSUPPORTED": CONFIGURATION,
    "FAILED_TO_CONSUME_MESSAGE": None,
}


def test_every_code_of_the_protocol_has_its_outcome() -> None:
    codes = dict(protocol().definitions.Code.items())
    del codes["OK"]

    found = {
        name: from_answer(sent_ids=["evt_1"], code=code, message="why", entries=[])
        for name, code in codes.items()
    }

    assert {name: result.failure for name, result in found.items()} == TABLE
    for name, result in found.items():
        unknown = TABLE[name] is None
        assert result.outcome is (
            SendOutcome.UNKNOWN if unknown else SendOutcome.DEFINITE_FAILURE
        ), name
        assert (result.code, result.detail) == (str(codes[name]), "why")


@pytest.mark.parametrize("code", [1, 19_999, 20_001, 39_999, 41_299, 59_999, 77_777])
def test_an_unknown_code_proves_nothing(code: int) -> None:
    result = from_answer(sent_ids=["evt_1"], code=code, message="", entries=[])

    assert result.outcome is SendOutcome.UNKNOWN


@pytest.mark.parametrize(
    ("entries", "outcome"),
    [
        ([(20_000, "a,b")], SendOutcome.CONFIRMED),
        ([(20_000, "b,a")], SendOutcome.UNKNOWN),
        ([(20_000, "a")], SendOutcome.UNKNOWN),
        ([(20_000, "a,b,c")], SendOutcome.UNKNOWN),
        ([(20_000, "a"), (20_000, "b")], SendOutcome.UNKNOWN),
        ([(50_402, "a,b")], SendOutcome.UNKNOWN),
        ([], SendOutcome.UNKNOWN),
    ],
)
def test_ok_is_confirmed_only_with_one_entry_that_names_what_was_sent(
    entries: list[tuple[int, str]], outcome: SendOutcome
) -> None:
    result = from_answer(sent_ids=["a", "b"], code=20_000, message="", entries=entries)

    assert result.outcome is outcome
    assert result.failure is None


NO_CONNECTION = "failed to connect to all addresses; last error: UNKNOWN: Connection refused"


@pytest.mark.parametrize(
    ("status", "detail", "failure"),
    [
        ("UNAVAILABLE", NO_CONNECTION, LATER),
        ("UNAVAILABLE", "Stream removed", None),
        ("UNAVAILABLE", "Socket closed", None),
        ("UNAVAILABLE", "DNS resolution failed", None),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", None),
        ("DEADLINE_EXCEEDED", NO_CONNECTION, None),
        ("CANCELLED", "Channel closed!", None),
        ("INTERNAL", "", None),
        ("RESOURCE_EXHAUSTED", "", None),
        ("UNKNOWN", "", None),
        ("UNIMPLEMENTED", "", CONFIGURATION),
        ("UNAUTHENTICATED", "", CONFIGURATION),
        ("PERMISSION_DENIED", "", CONFIGURATION),
        ("INVALID_ARGUMENT", "", CONFIGURATION),
    ],
)
def test_a_transport_error_is_definite_only_when_no_stream_was_opened(
    status: str, detail: str, failure: FailureClass | None
) -> None:
    result = from_transport(status=status, detail=detail)

    assert result.failure is failure
    assert result.outcome is (
        SendOutcome.UNKNOWN if failure is None else SendOutcome.DEFINITE_FAILURE
    )

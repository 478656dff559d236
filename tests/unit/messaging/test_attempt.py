"""One attempt at a batch: what is tried in place, split, decided, or left."""

from collections.abc import Callable, Sequence

import psycopg.errors
import pytest

from messaging.attempt import Outage, settle
from messaging.broker.base import ReceivedMessage
from messaging.disposition import DONE, DUPLICATE, Decision, Disposition, retry
from messaging.errors import PermanentError, TransientError


def message(name: str, attempt: int = 1) -> ReceivedMessage:
    return ReceivedMessage(
        topic="ORDER_CREATE_V1",
        message_id=name,
        body=b"{}",
        tag="CREATE_ORDER",
        keys=(),
        properties={},
        delivery_attempt=attempt,
        receipt_handle=f"h-{name}",
        invisible_until=1e12,
        stored_at_ms=0,
    )


class Scripted:
    """Raises what `verdict` returns for a batch, answers DONE otherwise."""

    def __init__(self, verdict: Callable[[list[str], int], Exception | None]) -> None:
        self.verdict = verdict
        self.calls: list[list[str]] = []

    def handle(self, messages: Sequence[ReceivedMessage]) -> Sequence[Decision]:
        ids = [m.message_id for m in messages]
        self.calls.append(ids)
        error = self.verdict(ids, len(self.calls))
        if error:
            raise error
        return [DONE] * len(ids)


def run(handler: Scripted, *messages: ReceivedMessage) -> dict[str, tuple[Disposition, str]]:
    return {
        item.message.message_id: (item.decision.disposition, item.decision.reason)
        for group in settle(messages, handler=handler, max_retries=5)
        for item in group
    }


def test_a_good_batch_is_one_call_and_one_group() -> None:
    handler = Scripted(lambda ids, call: None)

    groups = list(settle([message("a"), message("b")], handler=handler, max_retries=5))

    assert [len(group) for group in groups] == [2]
    assert handler.calls == [["a", "b"]]


@pytest.mark.parametrize("code", ["40001", "40P01", "55P03"])
def test_a_lost_race_is_tried_three_times_in_place(code: str) -> None:
    lost = psycopg.errors.lookup(code)
    twice = Scripted(lambda ids, call: lost() if call < 3 else None)
    always = Scripted(lambda ids, call: lost())

    assert run(twice, message("a"), message("b")) == {
        "a": (Disposition.ACK_DONE, ""),
        "b": (Disposition.ACK_DONE, ""),
    }
    with pytest.raises(Outage, match=f"SQLSTATE_{code}"):
        run(always, message("a"), message("b"))
    assert always.calls == [["a", "b"]] * 3


def test_a_transient_failure_decides_nothing_and_is_not_split() -> None:
    handler = Scripted(lambda ids, call: TransientError("gate"))

    with pytest.raises(Outage):
        run(handler, message("a", 6), message("b"))

    assert handler.calls == [["a", "b"]]


def test_one_failure_among_ten_leaves_the_other_nine_alone() -> None:
    """Case 10."""
    handler = Scripted(lambda ids, call: PermanentError("BAD") if "m7" in ids else None)

    result = run(handler, *(message(f"m{n}") for n in range(10)))

    assert result.pop("m7") == (Disposition.QUARANTINE, "BAD")
    assert set(result.values()) == {(Disposition.ACK_DONE, "")}
    assert len(result) == 9
    assert handler.calls == [[f"m{n}" for n in range(10)], *([f"m{n}"] for n in range(10))]


def test_an_outage_in_the_middle_of_one_by_one_keeps_what_was_settled() -> None:
    def verdict(ids: list[str], call: int) -> Exception | None:
        return ValueError() if len(ids) > 1 else TransientError("x") if ids == ["c"] else None

    groups = settle([message(n) for n in "abcd"], handler=Scripted(verdict), max_retries=5)
    settled = [item.message.message_id for group in (next(groups), next(groups)) for item in group]
    with pytest.raises(Outage):
        next(groups)

    assert settled == ["a", "b"]


def test_an_unknown_failure_is_retried_until_the_last_delivery() -> None:
    """Case 8: max_retries 5 means six deliveries."""
    handler = Scripted(lambda ids, call: ValueError("boom"))

    verdicts = [run(handler, message("a", attempt))["a"] for attempt in (1, 5, 6, 7)]

    assert verdicts == [
        (Disposition.RETRY, "ValueError"),
        (Disposition.RETRY, "ValueError"),
        (Disposition.QUARANTINE, "ValueError"),
        (Disposition.QUARANTINE, "ValueError"),
    ]


def test_a_retry_decision_becomes_quarantine_at_the_last_delivery() -> None:
    class Later:
        def handle(self, messages: Sequence[ReceivedMessage]) -> Sequence[Decision]:
            return [retry("NOT_YET")] * len(messages)

    [group] = settle([message("a", 5), message("b", 6)], handler=Later(), max_retries=5)

    assert [item.decision.disposition for item in group] == [
        Disposition.RETRY,
        Disposition.QUARANTINE,
    ]


def test_a_unique_key_taken_by_a_competitor_is_tried_again_alone() -> None:
    handler = Scripted(lambda ids, call: psycopg.errors.UniqueViolation() if call < 3 else None)

    assert run(handler, message("a"), message("b")) == {
        "a": (Disposition.ACK_DONE, ""),
        "b": (Disposition.ACK_DONE, ""),
    }
    assert handler.calls == [["a", "b"], ["a"], ["a"], ["b"]]


def test_a_handler_with_too_few_decisions_is_a_bug_that_acks_nothing() -> None:
    class Short:
        def handle(self, messages: Sequence[ReceivedMessage]) -> Sequence[Decision]:
            return [DUPLICATE] if len(messages) > 1 else []

    result = run(Short(), message("a"), message("b"))  # type: ignore[arg-type]

    assert set(result.values()) == {(Disposition.RETRY, "TypeError")}

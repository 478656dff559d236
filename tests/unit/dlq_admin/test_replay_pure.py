"""The pure parts of replays: verdicts in their order, hashes, edits, rates and brakes."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dlq_admin.dry_run.plan_hash import batch_hash, item_hash
from dlq_admin.dry_run.verdict import (
    OrderFacts,
    Verdict,
    judge_compensate,
    judge_discard,
    judge_order,
    judge_other,
)
from dlq_admin.replay.editing import EditRefused, edited_difference
from dlq_admin.replay.limits import Pressure, rate, reason_to_pause, room
from dlq_admin.states import (
    BATCH_ALLOWED,
    BATCH_ENDED,
    ITEM_ALLOWED,
    ITEM_IN_FLIGHT,
    ITEM_PROCESSED,
    ITEM_SUCCESS,
    ITEM_TERMINAL,
    BatchStatus,
    ItemStatus,
)
from messaging import replays
from tests.fixtures.sales import received

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FACTS = OrderFacts(
    body_error="", hash_matches=True, inbox="", inbox_reason="", order_status="",
    other_live_order=False, release_state="", outcome="", valid_until=NOW + timedelta(minutes=1),
    now=NOW, extended=False, extension_asked=False, gate_names_it=None, held=True, voided=False,
    stock=3, quantity=1,
)  # fmt: skip
PAST = NOW - timedelta(seconds=1)
# Each row adds to the facts what the next line of the table must not be able to override.
TABLE: list[tuple[dict[str, Any], Verdict, str]] = [
    ({"body_error": "SCHEMA_UNSUPPORTED"}, Verdict.BLOCKED, "SCHEMA_UNSUPPORTED"),
    ({"hash_matches": False}, Verdict.BLOCKED, "HASH_MISMATCH"),
    ({"inbox": "CREATED", "order_status": "PAID"}, Verdict.NOOP, "ORDER_EXISTS"),
    ({"inbox": "REJECTED", "inbox_reason": "EXPIRED"}, Verdict.NOOP, "REJECTED_EXPIRED"),
    ({"inbox": "CREATED"}, Verdict.BREACH, "INBOX_CREATED_WITHOUT_ORDER"),
    ({"other_live_order": True}, Verdict.WILL_REJECT, "DUPLICATE_ORDER"),
    ({"release_state": "DUE"}, Verdict.BLOCKED, "RESERVATION_RELEASED"),
    ({"release_state": "DONE"}, Verdict.BLOCKED, "RESERVATION_RELEASED"),
    ({"voided": True}, Verdict.WILL_REJECT, "ACTIVITY_VOIDED"),
    ({"valid_until": PAST}, Verdict.BLOCKED, "RESERVATION_EXPIRED"),
    ({"valid_until": None}, Verdict.BLOCKED, "RESERVATION_EXPIRED"),
    ({"valid_until": PAST, "extension_asked": True, "held": False}, Verdict.BLOCKED,
     "RESERVATION_EXPIRED"),
    ({"valid_until": PAST, "extension_asked": True}, Verdict.BLOCKED, "GATE_NAMES_ANOTHER"),
    ({"valid_until": PAST, "extension_asked": True, "gate_names_it": False}, Verdict.BLOCKED,
     "GATE_NAMES_ANOTHER"),
    ({"stock": None}, Verdict.BLOCKED, "NO_STOCK_ROW"),
    ({"stock": 0}, Verdict.WILL_REJECT, "NO_FINAL_STOCK"),
    ({}, Verdict.WILL_CREATE, "STOCK"),
]  # fmt: skip


@pytest.mark.parametrize(("facts", "verdict", "reason"), TABLE)
def test_the_verdict_table(facts: dict[str, Any], verdict: Verdict, reason: str) -> None:
    found = judge_order(replace(FACTS, **facts))
    assert (found.verdict, found.reason) == (verdict, reason)


@pytest.mark.parametrize(
    ("stronger", "weaker"),
    [
        ({"body_error": "X"}, {"hash_matches": False}),
        ({"hash_matches": False}, {"inbox": "CREATED"}),
        ({"inbox": "CREATED", "order_status": "PAID"}, {"other_live_order": True}),
        ({"inbox": "CREATED"}, {"release_state": "DONE"}),
        ({"other_live_order": True}, {"release_state": "DONE"}),
        ({"release_state": "DONE"}, {"valid_until": PAST}),
        ({"valid_until": PAST}, {"stock": 0}),
    ],
)
def test_the_earlier_line_decides(stronger: dict[str, Any], weaker: dict[str, Any]) -> None:
    alone = judge_order(replace(FACTS, **stronger))
    assert judge_order(replace(FACTS, **{**weaker, **stronger})) == alone


def test_an_extension_is_needed_only_past_the_end() -> None:
    asked = replace(FACTS, extension_asked=True, gate_names_it=True)
    assert not judge_order(asked).needs_extension
    late = judge_order(replace(asked, valid_until=PAST))
    assert (late.verdict, late.needs_extension) == (Verdict.WILL_CREATE, True)
    written = judge_order(replace(FACTS, valid_until=PAST, extended=True))
    assert (written.verdict, written.needs_extension) == (Verdict.WILL_CREATE, False)


def test_verdicts_of_other_groups_and_dispositions() -> None:
    assert judge_other(body_error="", hash_matches=True, inbox="").verdict is Verdict.WILL_APPLY
    assert judge_other(body_error="", hash_matches=True, inbox="APPLIED").verdict is Verdict.NOOP
    yes = {"is_order_group": True, "held": True, "complete": True, "inbox": ""}
    assert judge_compensate(**yes).verdict is Verdict.WILL_COMPENSATE
    for change, reason in (
        ({"is_order_group": False}, "NOTHING_TO_COMPENSATE"),
        ({"held": False}, "NOT_HELD"),
        ({"complete": False}, "OWNER_UNKNOWN"),
    ):
        assert judge_compensate(**{**yes, **change}).reason == reason
    assert judge_compensate(**{**yes, "inbox": "CREATED"}).verdict is Verdict.NOOP
    assert judge_discard(is_order_group=True, held=True).verdict is Verdict.BLOCKED
    assert judge_discard(is_order_group=True, held=False).verdict is Verdict.WILL_DISCARD


def test_a_plan_s_hash_changes_with_everything_that_was_approved() -> None:
    item = {"ids": {"message_id": "evt_1"}, "payload_sha256": "a", "verdict": "NOOP",
            "versions": {"order": "1"}}  # fmt: skip
    hashes = {
        item_hash(**item),  # type: ignore[arg-type]
        item_hash(**{**item, "ids": {"message_id": "evt_2"}}),  # type: ignore[arg-type]
        item_hash(**{**item, "payload_sha256": "b"}),  # type: ignore[arg-type]
        item_hash(**{**item, "verdict": "WILL_CREATE"}),  # type: ignore[arg-type]
        item_hash(**{**item, "versions": {"order": "2"}}),  # type: ignore[arg-type]
    }
    assert len(hashes) == 5
    batch = {"group": "G", "disposition": "REPLAY", "rate_cap": 1, "extension_s": 0,
             "items": ["a", "b"]}  # fmt: skip
    changed = [{"group": "H"}, {"disposition": "DISCARD"}, {"rate_cap": 2}, {"extension_s": 1},
               {"items": ["b", "a"]}, {"items": ["a"]}]  # fmt: skip
    assert len({batch_hash(**{**batch, **change}) for change in [{}, *changed]}) == 7  # type: ignore[arg-type]


ORIGINAL = b'{"message_id":"evt_1","quantity":1,"producer":"a","trace":{"span_id":"s"},"x":[1,2]}'


@pytest.mark.parametrize(
    ("edited", "difference"),
    [
        (ORIGINAL.replace(b'"a"', b'"b"'), [{"path": "producer", "before": "a", "after": "b"}]),
        (ORIGINAL.replace(b'"s"', b'"t"'), [{"path": "trace.span_id", "before": "s",
                                             "after": "t"}]),
        (ORIGINAL.replace(b"[1,2]", b"[1,3]"), [{"path": "x", "before": [1, 2],
                                                 "after": [1, 3]}]),
        (ORIGINAL[:-1] + b',"new":true}', [{"path": "new", "before": None, "after": True}]),
    ],
)  # fmt: skip
def test_an_edit_s_difference(edited: bytes, difference: list[dict[str, Any]]) -> None:
    assert edited_difference(original=ORIGINAL, edited=edited) == difference


@pytest.mark.parametrize(
    ("edited", "why"),
    [
        (ORIGINAL, "nothing"),
        (ORIGINAL.replace(b'"quantity":1', b'"quantity":2'), "locked: quantity"),
        (ORIGINAL.replace(b'"quantity":1', b'"quantity":1.0'), "locked: quantity"),
        (ORIGINAL.replace(b'"quantity":1', b'"quantity":true'), "locked: quantity"),
        (ORIGINAL.replace(b'"quantity":1,', b""), "locked: quantity"),
        (ORIGINAL.replace(b"evt_1", b"evt_2"), "locked: message_id"),
        (ORIGINAL[:-1] + b',"user_id":"eve"}', "locked: user_id"),
        (ORIGINAL[:-1] + b',"payload":{"order_id":"x"}}', "locked: payload.order_id"),
        (ORIGINAL[:-1] + b',"user_id":{"a":1}}', "locked: user_id"),
        (b"[]", "no JSON object"),
        (b"{", "no JSON"),
        (b'{"a":"' + b"x" * 300_000 + b'"}', "longer"),
    ],
)
def test_edits_that_are_refused(edited: bytes, why: str) -> None:
    with pytest.raises(EditRefused, match=why):
        edited_difference(original=ORIGINAL, edited=edited)


def test_an_unreadable_original_cannot_be_edited() -> None:
    with pytest.raises(EditRefused, match="ids stay the same"):
        edited_difference(original=b"\xff{", edited=b'{"quantity":1}')


def test_the_rate_is_the_lowest_of_three() -> None:
    assert rate(cap=100, live=100, pressure=Pressure()) == 100
    assert rate(cap=100, live=7, pressure=Pressure()) == 7
    assert rate(cap=100, live=50, pressure=Pressure(share=0.25)) == 25


@pytest.mark.parametrize(
    ("per_s", "sent", "unpublished", "free"),
    [(10, 0, 0, 10), (10, 4, 0, 6), (10, 4, 9, 1), (10, 12, 0, 0), (0, 0, 0, 0), (0.5, 0, 0, 1),
     (0.5, 1, 0, 0)],
)  # fmt: skip
def test_room_is_a_second_s_worth(per_s: float, sent: int, unpublished: int, free: int) -> None:
    assert room(rate_per_s=per_s, sent_last_second=sent, unpublished=unpublished) == free


def paused(**changes: Any) -> str:
    facts: dict[str, Any] = {
        "recent": [], "invariant_failed": False, "pressure": Pressure(), "max_tx_p95_s": 1.0,
        "max_lag_s": 5.0,
    } | changes  # fmt: skip
    return reason_to_pause(**facts)


def test_brakes() -> None:
    assert paused() == ""
    assert paused(recent=[False] * 48 + [True] * 2) == ""  # 4 %
    assert paused(recent=[False] * 47 + [True] * 3) == "FAILURES: 3 of the last 50"  # 6 %
    assert paused(recent=[True] + [False] * 10) == "FAILURES: 1 of the last 11"
    assert paused(recent=[False] * 50 + [True] * 50) == ""  # only the newest 50 count
    assert paused(invariant_failed=True) == "INVARIANT_FAIL"
    assert paused(pressure=Pressure(database_share=0.8)) == ""
    assert paused(pressure=Pressure(database_share=0.81)) == "DATABASE_BUDGET: 81% used"


def test_every_state_is_in_one_phase_and_can_end() -> None:
    assert ITEM_TERMINAL.isdisjoint(ITEM_IN_FLIGHT | ITEM_PROCESSED)
    assert ITEM_SUCCESS <= ITEM_TERMINAL
    for table, ends in ((ITEM_ALLOWED, ITEM_TERMINAL), (BATCH_ALLOWED, BATCH_ENDED)):
        for start in table:
            reached, waiting = set(), [start]
            while waiting:
                state = waiting.pop()
                if state not in reached:
                    reached.add(state)
                    waiting += table[state]  # type: ignore[index]
            assert reached & ends
    assert set(ITEM_ALLOWED) == set(ItemStatus)
    assert set(BATCH_ALLOWED) == set(BatchStatus)


def test_nothing_is_sent_without_an_approval() -> None:
    before: set[ItemStatus] = set()
    waiting = [ItemStatus.DRAFT]
    while waiting:  # everything that can be reached without passing APPROVED
        state = waiting.pop()
        if state not in before and state is not ItemStatus.APPROVED:
            before.add(state)
            waiting += ITEM_ALLOWED[state]
    assert before.isdisjoint(ITEM_IN_FLIGHT | ITEM_PROCESSED | ITEM_SUCCESS)


@pytest.mark.parametrize(
    ("target", "group", "other"),
    [("A", "A", False), ("A", "B", True), (None, "A", False), (None, "B", False)],
)
def test_whom_a_replay_is_meant_for(target: str | None, group: str, other: bool) -> None:
    message = received(topic="T", body=b"{}", message_id="evt_1")
    if target:
        carried = replays.properties(replay_id="rpl_1", replay_count=1, target_group=target)
        message = replace(message, properties={**message.properties, **carried})
    assert replays.is_for_another(message, group=group) is other

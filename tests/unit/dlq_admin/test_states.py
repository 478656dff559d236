"""The tables of legal moves, owner rules and fingerprints: closed, and as the page promises."""

import pytest

from dlq_admin.capture.fingerprint import fingerprint, normalise
from dlq_admin.permissions import APPROVER, OPERATOR, PERMISSIONS, ROLES
from dlq_admin.states import (
    BATCH_ALLOWED,
    ITEM_ALLOWED,
    TICKET_ALLOWED,
    TICKET_OPEN,
    BatchStatus,
    ItemStatus,
    Severity,
    TicketStatus,
)
from dlq_admin.tickets.owners import owner_of, severity_of
from messaging.topology import CG_ORDER_CREATE, CG_POINTS


@pytest.mark.parametrize(
    ("table", "states"),
    [(TICKET_ALLOWED, TicketStatus), (ITEM_ALLOWED, ItemStatus), (BATCH_ALLOWED, BatchStatus)],
)
def test_every_state_says_where_it_may_go(table, states):
    assert set(table) == set(states)
    assert all(onward <= set(states) for onward in table.values())


def test_every_open_ticket_can_wait_and_only_ends_are_ends():
    can_wait = {status for status in TicketStatus if TicketStatus.WAITING in TICKET_ALLOWED[status]}
    assert can_wait == TICKET_OPEN - {TicketStatus.WAITING}
    assert TICKET_ALLOWED[TicketStatus.DISCARDED] == TICKET_ALLOWED[TicketStatus.MERGED] == set()
    assert TICKET_ALLOWED[TicketStatus.CLOSED] == {TicketStatus.REOPENED}


def test_a_waiting_ticket_may_return_to_every_state_that_can_wait():
    assert TICKET_ALLOWED[TicketStatus.WAITING] >= TICKET_OPEN - {TicketStatus.WAITING}


def test_no_role_has_a_permission_that_does_not_exist_and_no_role_plans_and_approves():
    for granted in ROLES.values():
        assert granted <= set(PERMISSIONS)
    assert "dlq_admin.plan_replay" not in ROLES[APPROVER]
    assert not {"dlq_admin.approve_replay", "dlq_admin.approve_discard"} & ROLES[OPERATOR]


def test_the_first_rule_that_matches_owns():
    assert owner_of(group=CG_ORDER_CREATE, topic="T", error_class="BUG") == "orders"
    assert owner_of(group=CG_ORDER_CREATE, topic="T", error_class="DEAD_LETTER") == "platform"
    assert owner_of(group="WEBHOOK", topic="", error_class="TOO_OLD") == "on-call"


def test_severity_by_group_and_sale():
    assert severity_of(group=CG_ORDER_CREATE, in_sale=True) is Severity.SEV1
    assert severity_of(group=CG_ORDER_CREATE, in_sale=False) is Severity.SEV2
    assert severity_of(group=CG_POINTS, in_sale=True) is Severity.SEV2
    assert severity_of(group=CG_POINTS, in_sale=False) is Severity.SEV3


def test_a_cause_is_one_cause_whatever_ids_numbers_and_texts_it_speaks_of():
    first = "KeyError: 'alice' at rsv_01JD0000000000000000000000 line 12 2026-11-30T05:00:00.123Z"
    second = "KeyError: 'bob' at rsv_01JD0000000000000000000001 line 977 2026-12-01T06:10:00.001Z"
    assert normalise(first) == normalise(second) == "KeyError: <text> at <id> line <n> <time>"
    assert fingerprint(error_class="BUG", error=first) == fingerprint(
        error_class="BUG", error=second
    )
    assert fingerprint(error_class="BUG", error=first) != fingerprint(
        error_class="TIMEOUT", error=first
    )


def test_no_buyer_is_left_in_a_sample():
    text = normalise('no account for carol@example.test ("secret") 0xdeadbeef')
    assert "carol" not in text
    assert "secret" not in text
    assert "deadbeef" not in text

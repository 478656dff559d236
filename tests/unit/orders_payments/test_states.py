"""The three machines of money, cell by cell (pure)."""

from itertools import product

import pytest

from orders.payments.states import (
    ATTEMPT_ALLOWED,
    ATTEMPT_OPEN,
    REFUND_ALLOWED,
    REFUND_OPEN,
    WEBHOOK_ALLOWED,
    AttemptStatus,
    RefundStatus,
    WebhookStatus,
    sources,
)

ATTEMPT = {
    "CREATED": {"SUBMITTED", "SUBMIT_UNKNOWN", "SUCCEEDED", "FAILED"},
    "SUBMITTED": {"SUCCEEDED", "FAILED"},
    "SUBMIT_UNKNOWN": {"SUBMITTED", "SUCCEEDED", "FAILED"},
    "SUCCEEDED": set(),
    "FAILED": {"SUCCEEDED"},
}
REFUND = {
    "DUE": {"SUBMITTED"},
    "SUBMITTED": {"SUBMIT_UNKNOWN", "SUCCEEDED", "FAILED"},
    "SUBMIT_UNKNOWN": {"SUCCEEDED", "FAILED"},
    "SUCCEEDED": set(),
    "FAILED": {"DUE", "SUCCEEDED"},
}
WEBHOOK = {
    "PARKED": {"APPLIED", "IGNORED", "TICKETED"},
    "APPLIED": set(),
    "IGNORED": set(),
    "TICKETED": set(),
}
CELLS = [
    (allowed, expected, source, target)
    for kind, allowed, expected in (
        (AttemptStatus, ATTEMPT_ALLOWED, ATTEMPT),
        (RefundStatus, REFUND_ALLOWED, REFUND),
        (WebhookStatus, WEBHOOK_ALLOWED, WEBHOOK),
    )
    for source, target in product(kind, kind)
]


@pytest.mark.parametrize(("allowed", "expected", "source", "target"), CELLS)
def test_each_cell(allowed, expected, source, target):
    assert (source.value in sources(allowed, target)) is (target.value in expected[source.value])


def test_every_state_is_in_its_map_and_money_that_moved_never_moves_back():
    assert set(ATTEMPT_ALLOWED) == set(AttemptStatus)
    assert set(REFUND_ALLOWED) == set(RefundStatus)
    assert set(WEBHOOK_ALLOWED) == set(WebhookStatus)
    assert not ATTEMPT_ALLOWED[AttemptStatus.SUCCEEDED]
    assert not REFUND_ALLOWED[RefundStatus.SUCCEEDED]
    assert {s.value for s in ATTEMPT_OPEN} == {"CREATED", "SUBMITTED", "SUBMIT_UNKNOWN"}
    assert {s.value for s in REFUND_OPEN} == {"DUE", "SUBMITTED", "SUBMIT_UNKNOWN"}

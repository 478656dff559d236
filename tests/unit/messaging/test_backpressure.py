"""Waits are bounded, breakers always let a probe through."""

import random

import pytest

from messaging.backpressure import (
    Backoff,
    IdleWait,
    QuarantineBreaker,
    TopicBreaker,
    timeouts_must_wait,
)


def test_a_backoff_doubles_with_jitter_up_to_its_cap_and_starts_again() -> None:
    backoff = Backoff(first_s=0.05, cap_s=5.0, rng=random.Random(1))

    waits = [backoff.next_s() for _ in range(50)]

    for step, wait in enumerate(waits):
        full = min(5.0, 0.05 * 2**step)
        assert full / 2 <= wait <= full
    backoff.reset()
    assert backoff.next_s() <= 0.05


def test_a_full_claim_loops_at_once_others_wait_ever_longer() -> None:
    idle = IdleWait()

    waits = [idle.after(claimed=0, limit=64) for _ in range(6)]
    full = idle.after(claimed=64, limit=64)
    some = idle.after(claimed=1, limit=64)

    assert waits == [0.1, 0.2, 0.25, 0.25, 0.25, 0.25]
    assert (full, some) == (0.0, 0.1)


@pytest.mark.parametrize(
    ("members", "lag_s", "waits"),
    [
        (1, 1.01, True),
        (1, 1.0, False),
        (0, 60.0, False),  # nobody consumes: nobody to make room for
    ],
)
def test_timeouts_wait_for_live_order_consumers_that_lag(
    members: int, lag_s: float, waits: bool
) -> None:
    assert timeouts_must_wait(order_members=members, order_lag_s=lag_s) is waits


def test_a_topic_breaker_opens_probes_ever_later_and_closes_on_success() -> None:
    breaker = TopicBreaker(threshold=3, first_s=0.2, cap_s=5.0)

    breaker.failed(100.0)
    breaker.failed(100.0)
    assert breaker.allows(100.0)
    breaker.failed(100.0)
    assert not breaker.allows(100.1)
    assert breaker.allows(100.2)

    breaker.begin_probe(100.2)
    assert not breaker.allows(100.3)  # one probe at a time
    assert breaker.allows(105.2)  # a probe that never ended does not block for ever
    breaker.failed(100.3)
    assert not breaker.allows(100.6)
    assert breaker.allows(100.7)
    for _ in range(30):
        breaker.failed(200.0)
    assert breaker.allows(205.0)

    breaker.succeeded()
    assert breaker.allows(200.0)
    assert not breaker.is_open


def test_quarantine_in_a_row_trips_the_breaker_one_success_between_does_not() -> None:
    breaker = QuarantineBreaker(in_a_row=3, share=1.1, window=100)

    seen = [breaker.saw(quarantined=q) for q in (True, True, False, True, True, True)]

    assert seen == [False] * 5 + [True]
    breaker.reset()
    assert not breaker.saw(quarantined=True)


def test_a_high_share_trips_the_breaker_only_with_a_full_window() -> None:
    breaker = QuarantineBreaker(in_a_row=100, share=0.5, window=10)

    seen = [breaker.saw(quarantined=n % 2 == 1) for n in range(10)]

    assert seen == [False] * 9 + [True]

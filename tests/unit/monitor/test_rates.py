"""Growth of totals over the last seconds."""

import pytest

from seckill.monitor.rates import RateMeter


def test_no_rate_before_there_are_two_looks() -> None:
    meter = RateMeter()
    assert meter.per_s is None
    meter.saw(1.0, 100)
    assert meter.per_s is None
    meter.saw(1.0, 100)  # the same look again: a source that was not read anew
    assert meter.per_s is None


def test_the_rate_is_that_of_the_window_not_of_the_whole_past() -> None:
    meter = RateMeter(window_s=4.0)
    for second in range(20):
        meter.saw(float(second), 10 * second)
    assert meter.per_s == pytest.approx(10.0)
    for second in range(20, 26):
        meter.saw(float(second), 190)
    assert meter.per_s == 0.0


def test_a_look_after_a_long_silence_counts_the_growth_since_the_last_one() -> None:
    meter = RateMeter(window_s=4.0)
    meter.saw(0.0, 0)
    meter.saw(100.0, 500)
    assert meter.per_s == pytest.approx(5.0)


def test_a_total_that_fell_starts_over_and_never_gives_a_negative_rate() -> None:
    meter = RateMeter()
    meter.saw(0.0, 1_000)
    meter.saw(1.0, 1_100)
    meter.saw(2.0, 3)
    assert meter.per_s is None
    meter.saw(3.0, 7)
    assert meter.per_s == pytest.approx(4.0)

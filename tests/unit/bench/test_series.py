"""Rates over time: of a counter, of instants, and few enough points to draw."""

import pytest

from bench.series import MOST, per_second, rates, thin


def test_a_counter_becomes_rates_and_a_fresh_start_is_no_rate():
    counts = [(0.5, 100), (1.0, 300), (1.5, 20), (2.0, 70), (2.0, 90)]
    assert rates(counts) == [(1.0, 400.0), (2.0, 100.0)]


def test_instants_are_counted_by_the_second_from_the_start():
    instants = [9.5, 10.1, 10.2, 10.9, 12.0, 12.5]
    assert per_second(instants, start=10.0) == [(1.0, 3.0), (2.0, 0.0), (3.0, 2.0)]
    assert per_second(instants, start=13.0) == per_second([], start=0.0) == []


def test_a_long_run_has_wider_spans_and_loses_none():
    instants = [n / 10 for n in range(1, 36_001)]
    points = per_second(instants, start=0.0)
    assert len(points) <= MOST + 1
    width = points[1][0] - points[0][0]
    assert sum(rate for _, rate in points) * width == pytest.approx(36_000, rel=0.001)


def test_thinning_keeps_the_mean_and_the_end():
    assert thin([(1.0, 2.0), (2.0, 4.0)]) == [(1.0, 2.0), (2.0, 4.0)]
    points = thin([(float(n), float(n % 2)) for n in range(MOST * 2)])
    assert len(points) == MOST
    assert {value for _, value in points} == {0.5}
    assert points[-1][0] == MOST * 2 - 1
    assert thin([]) == []

"""The latency histogram: exact counts, buckets about 3 % wide."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.loadgen.histogram import Histogram, bucket_of, upper_edge_us


@given(st.integers(min_value=0, max_value=600_000_000))
def test_a_value_lies_within_its_bucket_and_buckets_are_narrow(value):
    bucket = bucket_of(value)
    upper = upper_edge_us(bucket)
    lower = upper_edge_us(bucket - 1) + 1 if bucket else 0
    assert lower <= value <= upper
    assert upper - lower <= max(0, lower / 31)


@given(st.integers(min_value=0, max_value=10_000_000))
def test_buckets_grow_with_their_values(value):
    assert bucket_of(value) <= bucket_of(value + 1) <= bucket_of(value) + 1


def test_small_values_are_exact():
    assert [upper_edge_us(bucket_of(value)) for value in range(64)] == list(range(64))


def test_percentiles_of_known_values():
    histogram = Histogram()
    for value in range(1, 101):
        histogram.add(value * 1000)
    assert histogram.total == 100
    assert histogram.percentile_ms(50) == pytest.approx(50, rel=0.04)
    assert histogram.percentile_ms(95) == pytest.approx(95, rel=0.04)
    assert histogram.percentile_ms(99) == pytest.approx(99, rel=0.04)
    assert histogram.percentile_ms(100) == 100.0


def test_an_empty_histogram_answers_zero():
    assert Histogram().percentile_ms(99) == 0.0


def test_absurdly_long_latencies_are_counted_too():
    histogram = Histogram()
    histogram.add(10**12)
    histogram.add(-5)
    assert histogram.total == 2


def test_histograms_of_two_runs_become_one():
    one, other = Histogram(), Histogram()
    for value in (10, 20, 5_000):
        one.add(value)
    for value in (20, 40_000):
        other.add(value)
    one.merge(other.sparse())
    assert one.total == 5
    assert one.percentile_ms(60) == 0.02
    assert one.sparse()[20] == 2
    assert one.percentile_ms(100) == pytest.approx(40, rel=0.04)
    assert one.curve()["100"] == one.percentile_ms(100)

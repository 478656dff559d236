"""Memory over time: peak, end, and what still grows after the start."""

import pytest

from bench.footprint import Look, slope_per_hour, summary


def look(at_s: float, **rss_mb: float) -> Look:
    return Look(at_s=at_s, rss_mb=rss_mb, pss_mb={name: mb / 2 for name, mb in rss_mb.items()})


def test_the_slope_is_that_of_a_line_through_noise():
    assert slope_per_hour([(0, 10), (60, 11), (120, 12)]) == pytest.approx(60)
    assert slope_per_hour([(0, 5), (1, 6), (2, 5), (3, 6), (4, 5)]) == pytest.approx(0)
    assert slope_per_hour([(0, 1), (9, 5)]) == 0
    assert slope_per_hour([(1, 1), (1, 2), (1, 3)]) == 0


def test_what_is_taken_in_the_first_half_is_no_growth():
    looks = [look(0, orders=50, web=40), look(60, orders=90, web=60)]
    looks += [look(60.0 * n, orders=80, web=60) for n in range(2, 8)]
    found = summary(looks)
    assert found["rss_peak_mb"] == 150
    assert found["rss_end_mb"] == 140
    assert found["pss_peak_mb"] == 75
    assert found["rss_growth_mb_per_h"] == 0
    assert found["processes"] == 2
    assert found["rss_end_mb_by_process"] == {"orders": 80, "web": 60}


def test_a_leak_is_growth():
    looks = [look(60.0 * n, orders=80 + n) for n in range(8)]
    assert summary(looks)["rss_growth_mb_per_h"] == pytest.approx(60)

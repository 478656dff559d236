"""Rates from commit times: from the first commit to a share of them."""

import pytest

from bench.commits import Commits
from bench.loadgen.histogram import Histogram


def commits(*instants: float) -> Commits:
    return Commits(committed_s=sorted(instants), lateness=Histogram(), exact=True)


def test_the_rate_counts_up_to_the_share_and_ignores_stragglers():
    steady = [n / 1000 for n in range(1000)]
    assert commits(*steady).rate() == pytest.approx(1001, rel=0.01)
    with_stragglers = [*steady[:995], 20.0, 21.0, 22.0, 23.0, 24.0]
    assert commits(*with_stragglers).rate() == pytest.approx(1001, rel=0.01)
    assert commits(*with_stragglers).rate(1.0) < 50


def test_a_share_is_reached_at_the_commit_that_completes_it():
    found = commits(0.0, 1.0, 2.0, 3.0)
    assert [found.reached_s(share) for share in (0.25, 0.5, 0.99, 1.0)] == [0.0, 1.0, 3.0, 3.0]


def test_one_batch_has_no_rate():
    assert commits(5.0, 5.0).rate() == 0.0

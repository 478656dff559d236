"""The loop closed: a crowd of three times the capacity, with the delays of the real thing."""

from docs import governor_plot


def test_without_a_governor_the_queue_grows_for_as_long_as_the_crowd_comes():
    run = governor_plot.curves()["off"]
    assert max(second.lag_s for second in run) > 35
    assert sum(second.accepted for second in run) == 60_000


def test_a_known_capacity_keeps_every_order_within_the_slo():
    run = governor_plot.curves()["known"]
    assert max(second.lag_s for second in run) <= 2.0
    # and nothing is wasted: what could be made was let in
    assert sum(second.accepted for second in run) >= 0.95 * governor_plot.CAPACITY * 20
    assert sum(second.ordered for second in run) == sum(second.accepted for second in run)


def test_an_unknown_capacity_is_learned_within_seconds():
    run = governor_plot.curves()["on"]
    assert max(second.lag_s for second in run) <= 3.0
    assert all(second.lag_s < 2.0 for second in run[8:])
    assert sum(second.accepted for second in run) >= 0.95 * governor_plot.CAPACITY * 20


def test_a_capacity_known_too_high_by_half_still_keeps_the_slo():
    run = governor_plot.run(governor_plot.means(drain_per_s=1.5 * governor_plot.CAPACITY))
    assert max(second.lag_s for second in run) <= 3.0


def test_the_plot_in_the_docs_is_the_simulations():
    assert governor_plot.FILE.read_text(encoding="utf-8") == governor_plot.draw()

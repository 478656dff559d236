"""The loop closed: a crowd of three times the capacity, with the delays of the real thing."""

from docs import governor_plot
from seckill.governor.simulation import simulate
from seckill.governor.view import Level


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
    # after the throttling 70 % are let in, and the ramp takes its time: its share of 20 s is lost
    assert sum(second.accepted for second in run) >= 0.85 * governor_plot.CAPACITY * 20


def test_a_crowd_that_stays_is_let_in_at_all_of_the_capacity_again():
    run = simulate(
        offered_per_s=governor_plot.OFFERED,
        crowd_s=120,
        capacity_per_s=governor_plot.CAPACITY,
        seconds=120,
        means=governor_plot.means(),
    )
    assert {second.level for second in run[30:]} == {Level.NORMAL}
    assert sum(second.ordered for second in run[30:]) >= 0.99 * governor_plot.CAPACITY * 90
    assert max(second.lag_s for second in run[10:]) < 1.5


def test_a_capacity_known_too_high_by_half_still_keeps_the_slo():
    run = governor_plot.run(governor_plot.means(drain_per_s=1.5 * governor_plot.CAPACITY))
    assert max(second.lag_s for second in run) <= 3.0


def test_the_plot_in_the_docs_is_the_simulations():
    assert governor_plot.FILE.read_text(encoding="utf-8") == governor_plot.draw()

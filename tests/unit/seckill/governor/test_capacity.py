"""The formulas, held to worked examples."""

import io
import json
import math
import re
from dataclasses import fields

import pytest
from django.core.management import CommandError, call_command

from seckill.capacity import formulas as f
from seckill.capacity.knee import Step, find_knee, is_over
from seckill.capacity.plan import Numbers, plan
from seckill.governor.budget import Budget, budget


def test_backlog_of_a_burst_and_its_drain():
    assert f.growth_per_s(produce_per_s=20_000, consume_per_s=4_000) == 16_000
    backlog = f.burst_backlog(produce_per_s=20_000, consume_per_s=4_000, burst_s=0.5)
    assert backlog == 8_000
    assert f.drain_s(backlog=backlog, consume_per_s=4_000) == 2
    assert f.slo_budget_s(drain_s=2, transaction_s=0.1, network_s=0.5) == pytest.approx(2.6)


def test_backlog_that_never_ends():
    assert f.growth_per_s(produce_per_s=6_000, consume_per_s=4_000) == 2_000
    assert f.drain_s(backlog=1, consume_per_s=4_000, produce_per_s=6_000) == math.inf
    assert f.drain_s(backlog=1, consume_per_s=4_000, produce_per_s=4_000) == math.inf
    assert f.drain_s(backlog=0, consume_per_s=0) == 0


def test_a_million_messages_take_most_of_an_hour():
    seconds = f.drain_s(backlog=1_000_000, consume_per_s=900, produce_per_s=600)
    assert seconds == pytest.approx(3_333, abs=1)
    assert seconds / 60 == pytest.approx(55.6, abs=0.1)


def test_the_same_count_is_a_short_or_a_long_wait():
    assert f.lag_s(backlog=10_000, consume_per_s=100_000) == 0.1
    assert f.lag_s(backlog=10_000, consume_per_s=1_000) == 10


def test_budget_of_the_database():
    found = budget(safe_transactions=240, instances=12, most_per_instance=100)
    assert found == Budget(total=168, per_instance=14)
    assert budget(safe_transactions=1, instances=8, most_per_instance=4) == Budget(
        total=1, per_instance=1
    )


def test_storage():
    assert f.storage_bytes(count=1e6, message_bytes=1_500) == 1.5e9
    assert f.storage_bytes(count=1e6, message_bytes=1_500, replicas=3) == 4.5e9
    gib = f.storage_bytes(per_s=160, seconds=72 * 3600, message_bytes=2_048) / 2**30
    assert gib == pytest.approx(79, abs=0.5)
    all_of_it = f.storage_bytes(
        per_s=160, seconds=72 * 3600, message_bytes=2_048, replicas=3, overhead=1.3
    )
    assert all_of_it / 2**30 == pytest.approx(308, abs=1)


def test_a_hundred_million_orders_a_day():
    mean = f.mean_per_s(100e6)
    assert mean == pytest.approx(1_157, abs=1)
    peak = 20 * mean
    assert peak == pytest.approx(23_148, abs=1)
    sent = f.message_rate(business_per_s=peak, messages_each=6)
    assert sent == pytest.approx(138_889, abs=1)
    planned = f.with_reserve(sent, reserve=0.3)
    assert planned == pytest.approx(180_556, abs=1)
    assert 180_000 * 1_500 / 1e6 == 270
    a_day = f.storage_bytes(count=600e6, message_bytes=1_500)
    assert a_day == 0.9e12
    kept = f.storage_bytes(
        count=3 * 600e6, message_bytes=1_500, replicas=2, overhead=1.3, reserve=0.3
    )
    assert kept / 1e12 == pytest.approx(9.1, abs=0.1)
    assert f.queues(messages_per_s=180_000, per_queue_per_s=1_500) == (120, 128)
    assert f.delivery_rate(messages_per_s=180_000, groups=5) == 900_000


def test_workers_of_slow_tasks():
    assert f.message_rate(business_per_s=30, messages_each=20) == 600
    each = f.instance_rate(concurrency=40, seconds_each=20)
    assert each == pytest.approx(1.4)
    assert f.instances(demand_per_s=14, instance_per_s=each) == 10


def test_transactions_at_a_time():
    assert f.transactions_at_a_time(orders_per_s=4_000, orders_each=100, transaction_s=0.1) == 4


def test_plan_of_the_example_holds():
    found = plan(Numbers())
    assert found.drain_s == 2
    assert found.order_within_s == pytest.approx(2.6)
    assert found.breaks_first == ""


def test_plan_names_what_breaks_first():
    # 20 000/s go on for two seconds instead of a half: 32 000 wait, 8 s to drain
    found = plan(Numbers(burst_s=2))
    assert found.breaks_first == "order within the SLO"
    assert found.rows[0].need == pytest.approx(8.6)
    assert [row.name for row in found.rows if (row.load or 0) > 1] == [
        "order within the SLO",
        "lag at the end of the burst",
        "open reservations",
    ]


def test_plan_sizes_by_the_days_peak_by_lag_and_by_processes():
    found = {row.name: row for row in plan(Numbers(orders_per_day=100_000_000)).rows}
    peak = found["consumers, daily peak"]  # 1 157/s in the mean, twenty times that at the peak
    assert (peak.need, peak.have) == (pytest.approx(23_148, abs=1), 4_000)
    assert found["lag at the end of the burst"].need == 2
    # 14 loops of 128 orders in 0.1 s, seven tenths of their time: 12 544/s from one process
    assert found["processes"].need == 1
    found = {row.name: row for row in plan(Numbers(batch=1)).rows}
    assert found["processes"].need == 41
    assert plan(Numbers(batch=1)).breaks_first == "processes"


def test_plan_that_never_drains_says_so_in_table_and_json(capsys: pytest.CaptureFixture[str]):
    out = io.StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("capacity", "--steady-per-s", "6000", "--json", stdout=out)
    assert ended.value.code == 1
    found = json.loads(out.getvalue())
    assert found["drain_s"] is None
    assert found["breaks_first"] == "order within the SLO"
    out = io.StringIO()
    with pytest.raises(SystemExit):
        call_command("capacity", "--steady-per-s", "6000", stdout=out)
    assert "never" in out.getvalue()


@pytest.mark.parametrize(
    ("command", "option", "number", "says"),
    [
        ("capacity", "--queue-per-s", "0", "'0' is not a number above 0"),
        ("capacity", "--batch", "0", "'0' is not a whole number, a number above 0"),
        ("capacity", "--batch", "1.5", "'1.5' is not a whole number"),
        ("capacity", "--disk-gb", "-1", "'-1' is not 0 or a number above it"),
        ("capacity", "--burst-s", "inf", "'inf' is not"),
        ("calibrate_budget", "--seconds", "-1", "'-1' is not a number above 0"),
        ("calibrate_budget", "--seconds", "nan", "'nan' is not a number above 0"),
    ],
)
def test_numbers_without_a_meaning_are_refused(command: str, option: str, number: str, says: str):
    with pytest.raises(CommandError, match=re.escape(f"argument {option}: {says}")):
        call_command(command, f"{option}={number}")


def test_any_other_number_may_be_zero():
    for field in fields(Numbers):
        if field.name not in {"batch", "queue_per_s"}:
            plan(Numbers(**{field.name: 0})).as_json()


def steps(*rates: float) -> list[Step]:
    return [
        Step(
            concurrency=2**place,
            transactions_per_s=rate,
            orders_per_s=100 * rate,
            p50_ms=1.0,
            p95_ms=2.0,
            p99_ms=3.0,
        )
        for place, rate in enumerate(rates)
    ]


def test_knee_is_the_least_concurrency_near_the_best():
    assert find_knee(steps(10, 20, 38, 40, 41, 39)).concurrency == 4
    assert find_knee(steps(10, 8, 6)).concurrency == 1
    with pytest.raises(ValueError, match="no steps"):
        find_knee([])


def test_the_climb_ends_after_two_steps_without_gain():
    assert not is_over(steps(10, 20))
    assert not is_over(steps(10, 20, 40))
    assert not is_over(steps(10, 10.2, 40))
    assert is_over(steps(10, 20, 20.5, 20.1))

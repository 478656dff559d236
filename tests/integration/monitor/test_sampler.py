"""The sampler on the real stores: its numbers, its constant cost, a store that is away."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from inventory.gate import gate
from inventory.watch import count_answers
from orders.sale_numbers import sale_numbers
from seckill.governor import GovernorView, Level, history
from seckill.governor import store as governor_store
from seckill.governor.view import encode
from seckill.monitor import sampler as sampling
from seckill.monitor import store
from seckill.monitor.loop import sample_once
from seckill.monitor.sampler import Sampler
from seckill.monitor.snapshot import GovernorPart, SaleView, Snapshot
from tests.fixtures.purchases import purchases
from tests.fixtures.sales import Sale, open_sale
from tests.fixtures.sql import execute

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]

NOW_MS = 1_700_000_000_000


@pytest.fixture
def sampler() -> Iterator[Sampler]:
    made = Sampler(name="test")
    yield made
    made.close()


def shown(snapshot: Snapshot, sale: Sale) -> SaleView:
    (found,) = [view for view in snapshot.sales if view.activity_id == sale.activity_id]
    return found


def test_every_number_of_the_funnel_and_of_the_conservation_table(sampler: Sampler) -> None:
    made = purchases()
    counts = {"QUEUED": 4, "PENDING": 1, "SOLD_OUT": 30}
    gate().run(count_answers(activity_id=made.sale.activity_id, counts=counts))

    snapshot = sampler.sample(NOW_MS)

    assert snapshot.problems == ()
    view = shown(snapshot, made.sale)
    assert (view.status, view.gate, view.stopped) == ("OPEN", "OPEN", False)
    assert (view.requests, view.answers) == (35, counts)
    # paid, canceled, held and pending were accepted; pending is not in the broker yet
    assert (view.accepted, view.confirmed, view.pending, view.open) == (4, 3, 1, 2)
    assert (view.ordered, view.paid, view.unpaid) == (2, 1, 0)
    assert (view.canceled, view.refunded, view.rejected) == (1, 0, {})
    assert (view.unpaid_units, view.paid_units) == (0, 1)
    (units,) = view.units
    assert (units.supply, units.available, units.live, units.withheld) == (10, 9, 1, 0)
    assert (units.at_gate, units.reserved, units.difference) == (7, 2, 0)
    assert view.rates.accepted is None, "a rate needs two looks"
    assert snapshot.system is not None
    assert snapshot.system.quarantine_open == 1

    (rejected,) = [view for view in snapshot.sales if view.activity_id != made.sale.activity_id]
    assert (rejected.accepted, rejected.ordered) == (1, 0)
    assert rejected.rejected == {"RESERVATION_EXPIRED": 1}


def test_an_oversold_sale_shows_as_a_difference(sampler: Sampler, sale: Sale) -> None:
    execute("UPDATE inventory_stock SET initial = initial - 1 WHERE sku_id = %s", sale.sku_id)
    (units,) = shown(sampler.sample(NOW_MS), sale).units
    assert units.difference == -1


def test_rates_come_from_two_looks(sampler: Sampler, sale: Sale) -> None:
    sampler.sample(NOW_MS)
    sale.deliver(*sale.reserve_all(["ann", "bob"]))
    gate().run(count_answers(activity_id=sale.activity_id, counts={"QUEUED": 2, "BUSY": 6}))
    for part in (sampler._sales, sampler._gates):
        part._due = 0.0
    rates = shown(sampler.sample(NOW_MS + 2_000), sale).rates
    assert (rates.requests, rates.accepted, rates.ordered, rates.paid) == (4.0, 1.0, 1.0, 0.0)


def test_the_statements_of_a_look_do_not_grow_with_orders_or_sales() -> None:
    def statements() -> int:
        with CaptureQueriesContext(connection) as captured:
            sale_numbers(sampling.MOST_SALES)
            sampling._system()
        return len(captured)

    first = open_sale(units=40)
    first.deliver(first.reserve("ann"))
    few = statements()
    first.deliver(*first.reserve_all([f"u{n}" for n in range(30)]))
    for _ in range(3):
        open_sale()
    assert statements() == few
    assert few <= 14


def test_only_so_many_sales_are_watched_and_the_open_ones_come_first() -> None:
    sales = [open_sale() for _ in range(4)]
    execute("UPDATE inventory_activity SET status = 'CLOSED' WHERE id > %s", sales[0].activity_id)
    execute("UPDATE inventory_activity SET status = 'SETTLED' WHERE id = %s", sales[3].activity_id)
    found = [numbers.sale.activity_id for numbers in sale_numbers(2)]
    assert found == [sales[0].activity_id, sales[2].activity_id]


def test_a_database_that_fails_leaves_its_last_numbers_and_a_problem(
    sampler: Sampler, sale: Sale, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale.deliver(sale.reserve("ann"))
    assert shown(sampler.sample(NOW_MS), sale).ordered == 1

    def fail(*_: Any) -> None:
        raise connection.Database.OperationalError("away")

    for part in (sampler._sales, sampler._system):
        part._read, part._due = fail, 0.0  # type: ignore[assignment]
    sampler._gates._due = 0.0
    sale.reserve("bob")
    later = sampler.sample(NOW_MS + 1_000)

    assert [(problem.part, problem.error) for problem in later.problems] == [
        ("orders in PostgreSQL", "OperationalError"),
        ("workers in PostgreSQL", "OperationalError"),
    ]
    assert shown(later, sale).ordered == 1
    assert shown(later, sale).open == 2, "the gate is still read"


def test_one_of_two_samplers_looks_and_what_it_saw_is_kept_for_seconds(
    sampler: Sampler, sale: Sale, redis_client: redis.Redis
) -> None:
    assert sample_once(sampler, "one") is True
    assert sample_once(sampler, "two") is False
    assert sample_once(sampler, "one") is True

    found = gate().run(store.read())
    assert found.snapshot is not None
    assert json.loads(found.snapshot)["sales"][0]["activity_id"] == sale.activity_id
    assert 0 < redis_client.pttl(store.SNAPSHOT) <= store.SNAPSHOT_TTL_MS
    points = gate().run(store.read_points())
    assert len(points) == 2
    assert json.loads(points[-1])["sales"][str(sale.activity_id)][6] == 10, "units at the gate"

    redis_client.delete(store.LEASE)
    assert sample_once(sampler, "two") is True


def test_the_points_are_cut(sampler: Sampler, redis_client: redis.Redis) -> None:
    redis_client.rpush(store.POINTS, *["{}"] * (store.POINTS_KEPT + 50))
    sample_once(sampler, "one")
    assert redis_client.llen(store.POINTS) == store.POINTS_KEPT


def test_the_command_looks_once(sale: Sale, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("run_monitor", once=True)
    assert "sampled" in capsys.readouterr().out
    assert gate().run(store.read()).snapshot is not None


def test_the_governor_is_shown_with_its_numbers_whether_obeyed_or_not(
    sampler: Sampler, settings: Any
) -> None:
    assert shown_governor(sampler).state == "off"
    view = GovernorView(
        level=Level.THROTTLE,
        entry_rate=120.0,
        groups={},
        reasons=("LAG_HIGH: 1.8 s",),
        decided_at_ms=NOW_MS,
        signals={"tx_p99_ms": 412.5, "pool_wait_p95_ms": 31.0, "ready": None},
    )
    gate().run(governor_store.publish(decision=encode(view), ttl_ms=60_000))
    decided_by(view, before="NORMAL")
    decided_by(view, before="THROTTLE")  # no change of level: not in the history

    settings.SECKILL_GOVERNOR = "off"
    watching = shown_governor(sampler)
    assert (watching.state, watching.level) == ("watching", "THROTTLE")
    settings.SECKILL_GOVERNOR = "on"
    governor = shown_governor(sampler)
    assert (governor.state, governor.entry_rate) == ("on", 120.0)
    assert governor.reasons == ("LAG_HIGH: 1.8 s",)
    assert [(one.level, one.at_ms) for one in governor.history] == [("THROTTLE", NOW_MS)]
    snapshot = sampler.sample(NOW_MS)
    assert (snapshot.tx_p99_ms, snapshot.pool_wait_p95_ms) == (412.5, 31.0)
    assert snapshot.point()["lvl"] == "THROTTLE"

    gate().run(governor_store.forget())
    assert shown_governor(sampler).state == "stale"


def shown_governor(sampler: Sampler) -> GovernorPart:
    sampler._governor._due = 0.0
    governor = sampler.sample(NOW_MS).governor
    assert governor is not None
    return governor


def decided_by(view: GovernorView, *, before: str) -> None:
    history.store(history.Decided(view=view, before=before, leader="me"))

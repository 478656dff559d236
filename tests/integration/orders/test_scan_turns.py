"""The scanner's turns: one sale's trouble is no other's."""

import pytest

from inventory import keys, operations
from inventory.errors import GateUnavailable
from inventory.gate import Gate
from inventory.selectors import operation_status
from inventory.turns import FAILED_IN_A_ROW
from orders.scan import gate_ops as gate_ops_module
from orders.scan.gate_ops import GateOpsJob
from orders.scan.mark import MarkJob
from tests.fixtures.sales import end_leases, open_sale, wait_past
from tests.fixtures.sql import execute

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]


@pytest.fixture
def fail_for(monkeypatch):
    """Let every call about these sales find no Redis; returns the scripts and reads that did."""
    real = Gate.run

    def make(*sales):
        tags = {keys.tag(sale.activity_id) for sale in sales}
        failed = []

        def run(self, call):
            names = [str(name) for name in (*call.keys, *(c[1] for c in call.commands if c[1:]))]
            if any(name.startswith(tuple(tags)) for name in names):
                failed.append(call)
                raise GateUnavailable("its shard is down")
            return real(self, call)

        monkeypatch.setattr(Gate, "run", run)
        return failed

    return make


def test_a_sale_whose_shard_is_down_stops_no_other_sale(redis_client, pending, sweep, fail_for):
    sick, late = open_sale(), open_sale(validity_ms=1)
    unsent = late.reserve("ann", sent=False)
    end_leases(redis_client, late, unsent)
    MarkJob().run_once()
    fail_for(sick)

    with pytest.raises(GateUnavailable):
        pending.run_once()
    assert late.at_gate(unsent).mq_status == "MQ_SENT"
    wait_past(unsent)
    with pytest.raises(GateUnavailable):
        sweep.run_once()
    assert late.outcome(unsent)[0] == "REJECTED"
    with pytest.raises(GateUnavailable):
        MarkJob().run_once()
    assert redis_client.get(keys.mark(late.activity_id)) == "2"


def test_a_server_that_is_away_is_not_asked_for_each_of_its_sales(pending, fail_for):
    failed = fail_for(*[open_sale() for _ in range(FAILED_IN_A_ROW + 2)])

    with pytest.raises(GateUnavailable):
        pending.run_once()

    assert len(failed) == FAILED_IN_A_ROW


def test_operations_that_are_stuck_keep_no_other_from_its_turn(monkeypatch, fail_for):
    monkeypatch.setattr(gate_ops_module, "BATCH", 2)
    sick, well = open_sale(), open_sale()
    execute("UPDATE inventory_activity SET version = 2")
    with monkeypatch.context() as patch:
        patch.setattr("inventory.operation_requests.drive_operation", lambda _: "REQUESTED")
        patch.setattr("inventory.operation_requests._AGAIN_AFTER_S", ())
        for _ in range(3):
            operations.request_cut(
                activity_id=sick.activity_id, sku_id=sick.sku_id, units=1, reason="test"
            )
        last = operations.request_pause(activity_id=well.activity_id, reason="test")
    fail_for(sick)
    job = GateOpsJob()

    with pytest.raises(GateUnavailable):
        job.run_once()
    assert operation_status(last)[0] == "REQUESTED"
    with pytest.raises(GateUnavailable):
        job.run_once()
    assert operation_status(last)[0] == "DONE"
    assert job.run_once() == 0
    with pytest.raises(GateUnavailable):  # from the start again
        job.run_once()
